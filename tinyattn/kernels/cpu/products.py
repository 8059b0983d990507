"""Matrix products of small tiles, between the steps of one loop.

NumPy's BLAS is as fast but can only be called from Python, once for each product of each tile.
"""

from __future__ import annotations

from .compiler import inner


@inner
def up_to(n, multiple):
    """The smallest multiple that is at least n."""
    return (n + multiple - 1) // multiple * multiple


@inner(forceinline=True)
def add_product(a, b, c, columns):
    """c[i, :columns] += sum over l of a[i, l] * b[l, :columns].

    Rows of a and of b are taken in fours, so there must be a multiple of four of each: then every
    number loaded serves four times. The inner loop runs along memory in b and c and becomes vector
    instructions; columns beyond a multiple of 16, the widest register, are slow. The rows of b
    should lie close together: if they are a large power of two apart, they fall on the same lines
    of the cache, and this becomes six times slower. Every a comes from `rows_at`, is the
    transpose of what does, or a slice in both directions: to Numba these are of one type, and this
    is compiled once.
    """
    for i in range(0, a.shape[0], 4):
        c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
        for l in range(0, a.shape[1], 4):  # noqa: E741
            a00, a01, a02, a03 = a[i, l], a[i, l + 1], a[i, l + 2], a[i, l + 3]
            a10, a11, a12, a13 = a[i + 1, l], a[i + 1, l + 1], a[i + 1, l + 2], a[i + 1, l + 3]
            a20, a21, a22, a23 = a[i + 2, l], a[i + 2, l + 1], a[i + 2, l + 2], a[i + 2, l + 3]
            a30, a31, a32, a33 = a[i + 3, l], a[i + 3, l + 1], a[i + 3, l + 2], a[i + 3, l + 3]
            b0, b1, b2, b3 = b[l], b[l + 1], b[l + 2], b[l + 3]
            for j in range(columns):
                x0, x1, x2, x3 = b0[j], b1[j], b2[j], b3[j]
                c0[j] = c0[j] + a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
                c1[j] = c1[j] + a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
                c2[j] = c2[j] + a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
                c3[j] = c3[j] + a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3
