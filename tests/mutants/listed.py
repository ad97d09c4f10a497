"""Mutants written by hand: those that once survived, and their like."""

from __future__ import annotations

from collections.abc import Iterator

from mutants.mutant import ROOT, Mutant

# file, old text, new text: mutations that once survived, and their like. `old` must occur; every occurrence is a mutant.
LISTED: tuple[tuple[str, str, str], ...] = (
    ("tcsim/reference/values.py", "+ random >= 1 << 32", "+ random > 1 << 32"),
    ("tcsim/reference/blocks.py", "emax - f - 1", "emax - f"),
    ("tcsim/reference/blocks.py", "emax - f - 1", "emax - f - 2"),
    ("tcsim/reference/blocks.py", "out_format.emax + 1", "out_format.emax + 2"),
    ("tcsim/reference/blocks.py", "out_format.emax + 1", "out_format.emax"),
    ("tcsim/reference/blocks.py", "negative=x.negative and unit.zeros.signed", "negative=unit.zeros.signed"),
    ("tcsim/reference/blocks.py", "for t in terms if not t.zero]", "for t in terms]"),
    ("tcsim/reference/values.py", "max(significand.bit_length() - 1 + lsb, emin)", "significand.bit_length() - 1 + lsb"),
    ("tcsim/reference/values.py", "negative=total < 0 or all(", "negative=total < 0 or any("),
    ("tcsim/reference/dot.py", "zero = scale.zero or all(", "zero = scale.zero or any("),
    ("tcsim/reference/dot.py", "zero = scale.zero or all(t.zero for t in terms)", "zero = scale.zero"),
    ("tcsim/reference/dot.py", "zero = scale.zero or all(", "zero = all("),
    ("tcsim/schemes/bounds_papers.py", "gamma(k + p * p - 1,", "gamma(k + p * p,"),
    ("tcsim/schemes/bounds_papers.py", "gamma(k + p * p - 1,", "gamma(k + p * p - 2,"),
    ("tcsim/schemes/bounds_papers.py", "gamma(k + words * words - 1,", "gamma(k + words * words,"),
    ("tcsim/schemes/ozaki.py", "t = (d + 1) *", "t = d *"),
    ("tcsim/schemes/ozaki.py", "t = (d + 1) *", "t = (d + 2) *"),
    ("tcsim/schemes/ozaki_crt.py", "_INT32_TERMS = 2**17", "_INT32_TERMS = 2**17 + 1"),
    ("tcsim/schemes/ozaki_crt.py", "_INT32_TERMS = 2**17", "_INT32_TERMS = 2**18"),
    ("tcsim/quantize.py", "(fraction > top)", "(fraction >= top)"),
    ("tcsim/quantize.py", "np.where((rest != 0) & even, np.nextafter(quotient, beyond), quotient)", "quotient"),
    ("tcsim/quantize.py", "(rest != 0) & even", "(rest != 0)"),
    ("tcsim/quantize.py", "rest > 0, np.inf, -np.inf", "rest > 0, -np.inf, np.inf"),
    ("tcsim/quantize.py", "(result == 0) & (odd != 0)", "(result == 1) & (odd != 0)"),
)


def listed() -> Iterator[Mutant]:
    """The mutants of LISTED; one whose text is no longer there is printed: the list must follow the code."""
    for file, old, new in LISTED:
        text = (ROOT / file).read_text()
        parts = text.split(old)
        if len(parts) == 1:
            print(f"NOT THERE {file} has no {old!r} any more: change LISTED with it", flush=True)
        for i in range(1, len(parts)):
            yield Mutant(file, f"{old!r} -> {new!r}, place {i}", old.join(parts[:i]) + new + old.join(parts[i:]))
