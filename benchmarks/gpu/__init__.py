"""tinyattn beside PyTorch on one GPU: `python -m benchmarks.gpu`.

The harness, the libraries and the training step are those of the CPU. Here stand the rows
(cases.py), and the command with its table (__main__.py).
"""

from __future__ import annotations

import sys

from ..processes import ROOT


def use_stand_in() -> None:
    """Let the tests' stand-in for CuPy run the kernels on the host."""
    sys.path.insert(0, str(ROOT / "tests" / "gpu"))
    import stand_in

    from tinyattn.base import backend

    backend.register_cuda(stand_in.MODULE)
