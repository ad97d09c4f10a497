"""How kernels are compiled and run: Numba's options, cache, memory, fixed-width integers, vector instructions."""

from tcsim.codegen.start import import_numba

import_numba()
