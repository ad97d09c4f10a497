"""One table of rounding modes: its forms against the definition, and an unknown mode raises wherever one is read."""

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.fp import modes
from tcsim.fp.cpfloat_library import ROUNDINGS as CPFLOAT
from tcsim.fp.formats import FORMATS
from tcsim.fp.round_to import ROUNDINGS, round_to
from tcsim.fp.storage import FLOAT32, fields
from tcsim.hardware.choices import ROUNDINGS as UNITS
from tcsim.kernels.fast import plan, record
from tcsim.kernels.general.spec import spec_of
from tcsim.problem import Operand, Problem
from tcsim.reference.values import ROUNDINGS as DEFINED
from tcsim.reference.values import shift_right
from tcsim.schedule import Sequential

ROOT = Path(__file__).parents[2]
FP16 = tcsim.unit("h200", "float16")
WORDS = (0, 1, 1 << 29, 1 << 31, (1 << 32) - 1)


def test_the_names_are_one_list() -> None:
    assert DEFINED == modes.UNIT_MODES == UNITS == tuple(modes.CODES)
    assert list(ROUNDINGS) == list(modes.MODES)
    assert set(CPFLOAT) <= set(modes.MODES)
    assert modes.EXACT_CODE not in modes.CODES.values()


def cases(name: str) -> list[tuple[int, int, int]]:
    words = WORDS if name == "sr" else (0,)
    return list(product(range(-70, 71), range(1, 6), words))


@pytest.mark.parametrize("name", modes.UNIT_MODES)
def test_masks_are_the_definition(name: str) -> None:
    """What a kernel adds below the last place, written with Python's integers."""
    how = modes.masks(name)
    for x, bits, word in cases(name):
        ones, magnitude = (1 << bits) - 1, abs(x)
        cut = magnitude >> bits
        more = ((ones >> 1) & how.near) + (((cut & how.even) | how.away) & ones & 1)
        more += ones & (how.down if x < 0 else how.up)
        random = word << bits >> 32
        kept = (magnitude + more + random) >> bits | (how.odd if magnitude & ones else 0)
        assert (-kept if x < 0 else kept) == shift_right(x, bits, name, word), (x, bits, word)


@pytest.mark.parametrize("name", modes.UNIT_MODES)
def test_c_conditions_are_the_definition(name: str) -> None:
    text = modes.c_condition(name).replace("&&", " and ").replace("||", " or ").replace("!", " not ").replace("ull", "")
    for x, bits, word in cases(name):
        kept, rest = divmod(abs(x), 1 << bits)
        half, below = rest >> (bits - 1), rest & ((1 << (bits - 1)) - 1)
        known = {
            "odd": kept & 1,
            "half": half,
            "below": below,
            "negative": x < 0,
            "fraction": rest << 32 >> bits,
            "random": word,
        }
        up = bool(eval(text.strip(), {}, known))
        assert (-1 if x < 0 else 1) * (kept + up) == shift_right(x, bits, name, word), (x, bits, word)


def test_every_mode_is_a_case_of_the_cuda_kernels() -> None:
    text = modes.c_source()
    for name, code in modes.CODES.items():
        assert f"{name.upper()} = {code}" in text
        assert f"case {name.upper()}: return " in text
    assert f"EXACT = {modes.EXACT_CODE}" in text


def forced(**values: str) -> tcsim.Unit:
    """A unit with values that no check has seen, in its parts too."""
    unit = FP16.replace(evidence="?")
    for key, value in values.items():
        object.__setattr__(unit, key, value)
        for part in unit.parts:
            if hasattr(part, key):
                object.__setattr__(part, key, value)
    return unit


def spec(unit: tcsim.Unit) -> object:
    half = FORMATS["float16"]
    codes = np.zeros((1, 1, 1), np.uint16)
    return spec_of(Problem(unit, Sequential().plan(1), Operand(codes, half), Operand(codes, half), None))


def cuda(unit: tcsim.Unit) -> object:
    source = pytest.importorskip("tcsim_gpu.source")
    return source.unit_numbers(unit)


READERS: dict[str, Callable[[str], object]] = {
    "mode": modes.mode,
    "code": modes.mode_code,
    "masks": modes.masks,
    "c_condition": modes.c_condition,
    "processor_mode": modes.processor_mode,
    "round_to": lambda name: round_to(np.ones(1), "float16", name),
    "round_to's description": lambda name: fields(FORMATS["float16"], FLOAT32, name, "inf", "keep"),
    "the definition": lambda name: shift_right(3, 1, name),
    "the definition, where nothing is cut": lambda name: shift_right(3, 0, name),
    "a unit": lambda name: FP16.replace(rounding=name),
    "prose of the result": lambda name: forced(rounding=name).explain(),
    "prose of a term": lambda name: forced(align_rounding=name).explain(),
    "the general kernel's results": lambda name: spec(forced(rounding=name)),
    "the general kernel's terms": lambda name: spec(forced(align_rounding=name)),
    "the general kernel's products": lambda name: spec(forced(product_rounding=name)),
    "the fast path's numbers": lambda name: record.par_of(forced(rounding=name), 23, {}, 1),
    "the fast path's exact numbers": lambda name: plan._exact_plan(forced(rounding=name, align_rounding="exact")),
    "CUDA's results": lambda name: cuda(forced(rounding=name)),
    "CUDA's terms": lambda name: cuda(forced(align_rounding=name)),
    "CUDA's products": lambda name: cuda(forced(product_rounding=name)),
}


@pytest.mark.parametrize("name", ["rm", "RNE", ""])
@pytest.mark.parametrize("reader", READERS)
def test_an_unknown_mode_raises(reader: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"(?i)unknown .*rounding.*{re.escape(repr(name))}.*known: "):
        READERS[reader](name)


@pytest.mark.parametrize("broken", [("sideways", ""), ("nearest", ""), ("zero", "even"), ("random", "even")])
def test_a_record_that_no_kernel_could_follow_cannot_be_written(broken: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="of the rounding 'new'"):
        modes.Mode("new", broken[0], "", broken[1])


TOY = """
import sys, importlib.util
from importlib.machinery import PathFinder, SourceFileLoader

EDITS = {edits!r}

class Edited(SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        if path.endswith(".py"):
            for old, new in EDITS[self.name]:
                assert data.decode().count(old) == 1, old
                data = data.decode().replace(old, new).encode()
        return data
    def path_stats(self, path):
        raise OSError  # no byte code

class Finder:
    def find_spec(name, path=None, target=None):
        if name not in EDITS:
            return None
        found = PathFinder.find_spec(name, path)
        return importlib.util.spec_from_file_location(name, found.origin, loader=Edited(name, found.origin))

sys.meta_path.insert(0, Finder)
import numpy as np, tcsim
from tcsim import reference
from tcsim.kernels import dispatch
base = tcsim.unit("h200", "float16")
mi250 = tcsim.unit("mi250", "float16")
tie = np.array([[1.0, 2.0**-11]], np.float16)
units = [base.replace(rounding="rnz"), base.replace(rounding="rnz", fraction_bits=80), base.replace(align_rounding="rnz", fraction_bits=9),
         mi250.replace(rounding="rnz", product_rounding="rnz"), base.replace(rounding="rnz", align_rounding="exact")]
rng = np.random.default_rng(3)
differ = dict.fromkeys(("rne", "rna", "rz"), 0)
for u in units:
    short = u.replace(out_precision=4)  # ties everywhere
    a = rng.integers(-8, 9, (9, 40)).astype(np.float16) / 4
    b = rng.integers(-8, 9, (40, 7)).astype(np.float16) / 4
    got = tcsim.matmul(a, b, unit=short)
    want = tcsim.matmul(a, b, unit=short, backend="reference")
    assert (got.view(np.uint32) == want.view(np.uint32)).all(), u
    for other in differ:
        change = dict((k, other) for k in ("rounding", "align_rounding", "product_rounding") if getattr(short, k) == "rnz")
        differ[other] += int((tcsim.matmul(a, b, unit=short.replace(**change), backend="reference") != got).sum())
assert min(differ.values()) > 0, differ
assert "ties toward zero" in units[0].explain()
try:
    from tcsim_gpu.source import general_source
    assert "case RNZ: return half && below;" in general_source(units[0], base.a_format, base.b_format)
except ImportError:
    pass
print("toy", differ)
"""
TOY_EDITS = {
    "tcsim.fp.modes": [('ties toward zero", "zero"),', 'ties toward zero", "zero", "to nearest, ties toward zero"),')],
    "tcsim.reference.values": [
        ('ROUNDINGS = ("rz", "rne", "rna",', 'ROUNDINGS = ("rz", "rne", "rna", "rnz",'),
        ('        case "ru":', '        case "rnz":\n            up = 2 * rest > unit\n        case "ru":'),
    ],
}


def test_a_toy_mode_of_units_touches_the_files_that_contributing_lists() -> None:
    """Ties toward zero for units: `round_to` has them. One record and one definition, and every kernel follows."""
    row = next(line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if line.startswith("| a rounding "))
    for module in TOY_EDITS:
        assert f"`{module.replace('.', '/')}.py`" in row
    done = subprocess.run([sys.executable, "-c", TOY.format(edits=TOY_EDITS)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("toy")
