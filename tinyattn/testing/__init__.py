"""Proofs of derivatives: finite differences, and everything that an op of your own must hold."""

from .finite_differences import gradcheck, gradgradcheck
from .op_checks import check_op

__all__ = ["check_op", "gradcheck", "gradgradcheck"]
