"""Tensor: its operators and methods, the same as functions, and the functions that make tensors."""
