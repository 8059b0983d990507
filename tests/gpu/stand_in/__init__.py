"""A strict stand-in for CuPy, on NumPy: what is not in CuPy is not here, what CuPy refuses fails.

    arrays.py     ndarray, and the count of host synchronisations
    functions.py  the module's functions, each with the keywords CuPy gives it
    tasks.py      what was asked of the device, counted
    launch.py     RawModule: the same .cu source, compiled for the host by g++
    block.h       a block of CUDA threads on the host, for those sources

`MODULE` is the module. It is for tests alone: nothing here is fast. Whatever runs on it uses
only names and keywords of the real package, which test_stand_in.py checks where that is installed.
"""

from .arrays import ndarray as ndarray
from .arrays import synchronisations as synchronisations
from .functions import FUNCTIONS as FUNCTIONS
from .functions import UFUNCS as UFUNCS
from .functions import cupy
from .launch import COMPILER as COMPILER
from .launch import launches as launches

MODULE = cupy()
