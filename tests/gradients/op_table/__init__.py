"""The table of operations: what each should compute, and on what it is tried.

One `OpRow` for every op and every public differentiable callable. `test_op_table.py` generates its
tests from the rows, so that a new op needs a row and no new test. A row holds

    function    the callable under test, called with Tensors
    reference   the same in plain NumPy, for complex arrays too; see references.py
    torch       the same in PyTorch, or the reason why PyTorch cannot be asked
    samples     at least 20 calls, at least 4 of them edge cases; see samples.py
    errors      at least 3 calls that must be refused, with what the message must say
    covers      public names the row stands for, each called with the same arguments; all other
                names of the same objects are covered too
    spellings   other ways to write it, whose results must be bitwise the same
    reaches     ops that `function` records, found in the graph
    extremes    calls with numbers near the ends of float16 and float32; see extremes.py
    keeps       what is saved for the derivative: memory that a training step pays for
"""

from __future__ import annotations

from . import (
    arithmetic,
    attention,
    copies,
    elementwise,
    layers,
    logic,
    losses,
    order,
    packed,
    products,
    recurrent,
    reductions,
    shapes,
)
from .excluded import EXCLUDED as EXCLUDED
from .row import OpRow as OpRow
from .row import samples_of as samples_of

PARTS = (
    arithmetic, elementwise, reductions, losses, layers, attention, packed, shapes,
    logic, products, order, copies, recurrent,
)  # fmt: skip
ROWS: list[OpRow] = [row for part in PARTS for row in part.ROWS]
BY_NAME = {row.name: row for row in ROWS}
