"""The C side of tcsim.cpfloat, for cffi in ABI mode: no compiler and no CPFloat header is needed to build tcsim.

`python cffi_build/cpfloat.py FILE` writes the module that the build puts into the package as tcsim/_cpfloat.py.
The structure is that of CPFloat 0.6.0; tcsim.cpfloat checks it against the library before use.
"""

import sys
from pathlib import Path

from cffi import FFI

ROUND = "int cpfloat{s}({t} *out, const {t} *a, size_t n, optstruct *options);"
ONE = "int cpf_{f}{s}({t} *out, const {t} *a, size_t n, optstruct *options);"
TWO = "int cpf_{f}{s}({t} *out, const {t} *a, const {t} *b, size_t n, optstruct *options);"
THREE = "int cpf_{f}{s}({t} *out, const {t} *a, const {t} *b, const {t} *c, size_t n, optstruct *options);"

OPTIONS = """
typedef struct {
    char format[15];
    unsigned int precision;
    int emin;
    int emax;
    int explim;
    int infinity;
    int round;
    int saturation;
    int subnormal;
    int flip;
    double p;
    void *bitseed;
    void *randseedf;
    void *randseed;
} optstruct;
int cpfloat_populate_optstruct_from_format(optstruct *options);
"""


def description() -> FFI:
    """The declarations: the option struct, rounding, and arithmetic on float and double arrays."""
    ffi = FFI()
    ffi.cdef(OPTIONS)
    for ctype, suffix in (("float", "f"), ("double", "")):
        ffi.cdef(ROUND.format(t=ctype, s=suffix))
        for template, names in ((ONE, ("sqrt",)), (TWO, ("add", "sub", "mul", "div")), (THREE, ("fma",))):
            for name in names:
                ffi.cdef(template.format(t=ctype, s=suffix, f=name))
    ffi.set_source("tcsim._cpfloat", None)
    return ffi


def write(path: Path) -> None:
    """Generate the module at `path`."""
    description().emit_python_code(str(path))
    path.write_text("# mypy: ignore-errors\n# ruff: noqa\n" + path.read_text())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
