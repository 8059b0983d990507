"""The engine: how an op is declared and recorded, and how gradients flow back.

Read `engine/op.py` first, then `mul` in `ops/arithmetic.py`, `engine/rules.py` and
`engine/autograd.py`. The other files are short.

    op.py          declares an op, calls it and records the call
    rules.py       chooses the derivative rules of one call, and runs them
    autograd.py    holds the recorded graph, and computes gradients: backward, grad
    versions.py    counts changes in place, so that backward notices them
    guard.py       keeps the forwards and rules of a user from changing a graph
    promotion.py   gives a result the dtype that PyTorch gives it
    grad_mode.py   switches recording off and on: no_grad, enable_grad
"""
