"""Tensor: what it holds, its operators and methods, and the functions that make tensors.

tensor.py     the class, and in which file each of its methods is
create.py     tensor, zeros, arange, randn, one_hot and others
"""
