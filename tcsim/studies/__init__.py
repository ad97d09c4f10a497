"""The studies by name; the module of the same name, with _ for -, declares its `STUDY` (see `base`)."""

_NAMES = (
    "rounding-growth",
    "fabsum",
    "methods",
    "terms",
    "mantissa",
    "lsb-cut",
    "ozaki-slices",
    "ozaki-accuracy",
    "ozaki-integers",
    "ozaki-residues",
    "slice-choice",
    "float32-emulation",
    "fp8-accumulators",
    "architectures",
    "what-if",
    "narrow-range",
    "gpu-multiword",
    "gpu-ozaki",
)

STUDIES = {name: name.replace("-", "_") for name in _NAMES}
