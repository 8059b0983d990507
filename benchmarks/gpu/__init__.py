"""tinyattn beside PyTorch on one GPU: `python -m benchmarks.gpu`.

cases.py     what is timed, and the sizes
sides.py     each case once for every library
measure.py   how it is timed
report.py    table, JSON, plot
"""
