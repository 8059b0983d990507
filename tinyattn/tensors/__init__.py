"""Tensor: its operators and methods, the same as functions, and the functions that make tensors.

tensor.py     the class, and in which file each of its methods is
create.py     tensor, zeros, arange, randn, cat, where and others
functions.py  the methods as functions: `ta.sum(x, 0)` is `x.sum(0)`
einsum.py     einsum
in_place.py   `x += y`
arguments.py  checks of arguments that are Tensors
types.py      what methods take and return, for type checkers
"""
