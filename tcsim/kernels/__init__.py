"""The kernels of the cpu backend, imported all at once with Python's collector of cycles at rest."""

from tcsim.codegen.start import imports

with imports():
    from tcsim.kernels import dispatch as dispatch
