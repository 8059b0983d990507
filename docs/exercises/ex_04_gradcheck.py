"""Exercise 4: a gradient check.

Write the function, then `pytest docs/exercises/test_04_gradcheck.py` says what is wrong. About 20
minutes. The page is docs/course/04_trust_no_gradient.md, with three hints at its end.
"""

from collections.abc import Callable

import numpy as np


def is_right(
    function: Callable[[np.ndarray], np.ndarray],
    rule: Callable[[np.ndarray, np.ndarray], np.ndarray],
    x: np.ndarray,
) -> bool:
    """Whether rule(grad, x) is the gradient of x, for any gradient of function(x).

    x may be float32. It must not be changed.
    """
    raise NotImplementedError
