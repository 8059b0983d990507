"""Settings of a library that tinyattn does not use; a program may set them.

Nothing depends on them: runs are always repeatable.
"""

deterministic, benchmark, enabled = True, False, False
