"""The engine: how an op is declared and recorded, and how gradients flow back.

Read `op.py` first, then one small op, such as `mul` in `ops/elementwise.py`, then `autograd.py`.
"""
