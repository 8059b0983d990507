"""Exercise 15: find out from its behaviour what is wrong with an attention.

Write `diagnose`, then `pytest docs/exercises/test_15_bugs_that_train.py` says what your answers
overlook. About 40 minutes. The page is docs/course/15_bugs_that_train.md, with three hints at its
end.

Five attentions are in black_boxes.py, which you need not open. Try them from this folder:

    from black_boxes import BOXES
    out = BOXES["box_1"](q, k, v, causal=True)

q, k and v are arrays (B, N, D) that are already projected, the output is (B, N, D). A box has two
heads of D / 2 columns each. With causal=True query i may see the keys 0 to i, else all keys.
"""

from collections.abc import Callable

import numpy as np

DEFECTS = {
    "none": "the box is right",
    "dropout": "dropout on the weights, though nothing is trained",
    "samples mixed": "samples and heads are taken for each other when heads are joined",
    "softmax over queries": "the weights of a key, not of a query, sum to 1",
    "mask after softmax": "the weights of invisible keys are set to 0 after softmax",
    "causal off by one": "query i sees the keys 0 to i + 1",
    "heads split by reshape": "(B, N, D) is reshaped to (B, 2, N, D / 2)",
    "no root of d": "scores are not divided by the root of D / 2",
}


def diagnose(attention: Callable[..., np.ndarray]) -> str:
    """The defect of a box, one of DEFECTS. The grader calls it with the five boxes, and with others
    of the same kinds."""
    raise NotImplementedError
