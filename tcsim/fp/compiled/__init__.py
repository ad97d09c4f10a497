"""The compiled loops behind codes and rounding, imported all at once with Python's collector of cycles at rest."""

from tcsim.codegen.start import imports

with imports():
    from tcsim.fp.compiled import codes as codes
    from tcsim.fp.compiled import rounding as rounding
