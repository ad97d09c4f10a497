"""What a user's grid can vary besides units, sizes and seeds: schemes with options, inputs, references, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from itertools import product
from typing import Any, NamedTuple

from tcsim.errors import unknown
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit
from tcsim.schedule import Blocked, Lanes, Schedule, Sequential, SplitK, Tiled
from tcsim.schemes.multiword import Recipe

Fields = dict[str, Any]
_SCHEDULES = {made.__name__: made for made in (Sequential, SplitK, Blocked, Tiled, Lanes)}


class Product(NamedTuple):
    """A computed C, what it is compared with, and |A||B|."""

    c: Any
    reference: Any
    magnitude: Any
    a: Any
    b: Any


class Metric(NamedTuple):
    """How an error is measured: its formula as axes and tables show it, and the function."""

    shown: str
    of: Callable[[Product], float]


def _metric(name: str, shown: str, needs: str = "") -> Metric:
    def of(p: Product) -> float:
        from tcsim.analysis import metrics

        return float(getattr(metrics, name)(p.c, p.reference, *(getattr(p, part) for part in needs.split())))

    return Metric(shown, of)


METRICS: dict[str, Metric] = {
    "componentwise": _metric("max_componentwise", "max |C - Ĉ| / (|A||B|)", "magnitude"),
    "frobenius": _metric("frobenius", "||C - Ĉ||_F / ||C||_F"),
    "normwise": _metric("normwise", "||C - Ĉ|| / (||A|| ||B||), infinity norm", "a b"),
    "mean_relative": _metric("mean_relative", "mean |C - Ĉ| / |C|"),
    "max_relative": _metric("max_relative", "max |C - Ĉ| / |C|"),
    "capped_relative": _metric("capped_relative", "mean min(1, |C - Ĉ| / |C|)"),
}

REFERENCES = {
    "exact": "the exact product of A and B",
    "rounded": "the exact product of A and B rounded to nearest in the unit's formats: what is left is the error of its sums",
    "float64": "every product and sum rounded to nearest in float64, in ascending k",
    "float32": "the same in float32",
}


def schedule_fields(schedule: Schedule) -> Fields:
    """A schedule as a cell holds it."""
    return {"kind": type(schedule).__name__, **{f.name: getattr(schedule, f.name) for f in fields(schedule)}}


def schedule_of(given: Mapping[str, Any]) -> Schedule:
    """The schedule of a cell."""
    known = {key: value for key, value in given.items() if key != "kind"}
    return _SCHEDULES[given["kind"]](**known)


def schemes_named(given: Sequence[str] | Mapping[str, str | Recipe]) -> dict[str, str | Recipe]:
    """Every scheme of an axis by its label; an option with several values, "fabsum:block=64|128", is as many schemes.

    ValueError names the nearest match of an unknown scheme or option.
    """
    from tcsim.schemes.gemm import check_options

    found: dict[str, str | Recipe] = {}
    named = given if isinstance(given, Mapping) else {text: text for text in given}
    for label, scheme in named.items():
        if isinstance(scheme, Recipe):
            found[label] = scheme
            continue
        for one in _each_option(scheme):
            check_options(*own_options(one))
            found[one if label == scheme else label if one == scheme else f"{label}: {one.partition(':')[2]}"] = one
    return found


def _each_option(scheme: str) -> list[str]:
    name, colon, text = scheme.partition(":")
    parts = [part.partition("=") for part in text.split(",")]
    values = [[f"{key}{equals}{one}" for one in several.split("|")] for key, equals, several in parts]
    return [name + colon + ",".join(chosen) for chosen in product(*values)]


def own_options(scheme: str) -> tuple[str, Fields]:
    """A scheme's name and the options after its colon: "fabsum:block=256,sum=float64"; numbers and true or false are what they say."""
    name, _, text = scheme.partition(":")
    options: Fields = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (x.strip() for x in part.partition("="))
        if not (key and equals and value):
            raise ValueError(f"scheme {scheme!r}: options are written {name}:words=3,block=128; {part!r} is none")
        options[key] = _value(value)
    return name, options


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def recipe_fields(recipe: Recipe) -> Fields:
    """A recipe of one's own as a cell holds it."""
    found = {f.name: getattr(recipe, f.name) for f in fields(recipe)}
    return {key: schedule_fields(x) if key in ("first", "others") and x is not None else x for key, x in found.items()}


def recipe_of(given: Mapping[str, Any]) -> Recipe:
    """The recipe of a cell."""
    made: Fields = {key: schedule_of(x) if key in ("first", "others") and x is not None else x for key, x in given.items()}
    made["groups"] = tuple(tuple((i, j) for i, j in group) for group in made["groups"])
    return Recipe(**made)


def references_named(given: Sequence[str | Unit] | Mapping[str, str | Unit] | None) -> dict[str, Any]:
    """Every reference of an axis by its label, as a cell holds it: its name, or the fields of a unit.

    ValueError for what is neither one of `REFERENCES` nor a unit.
    """
    named = (
        given
        if isinstance(given, Mapping)
        else {x if isinstance(x, str) else x.label: x for x in (("exact",) if given is None else given)}
    )
    found: dict[str, Any] = {}
    for label, reference in named.items():
        if isinstance(reference, str) and ":" not in reference and "->" not in reference:
            if reference not in REFERENCES:
                raise unknown("reference", reference, [*REFERENCES, "a unit such as a100:fp16"])
            found[label] = reference
        else:
            u = as_unit(reference)
            if u.scale is not None or u.a_format.integer:
                raise ValueError(f"{u.label} is no reference: it takes {'block scales' if u.scale else 'integers'}")
            found[label] = u.as_dict(compared=True)
    return found


def compared_with(reference: Any, a: Any, b: Any, unit: Unit) -> tuple[Any, Any, Any, Any]:
    """(reference, |A||B|, A, B) of a cell: A and B themselves, or as the unit's formats hold them for "rounded"."""
    from tcsim.analysis import exact
    from tcsim.fp.codes import decode, encode
    from tcsim.matmul import matmul

    if reference == "rounded":
        a, b = (decode(encode(x, fmt, rounding="rne"), fmt) for x, fmt in ((a, unit.a_format), (b, unit.b_format)))
    magnitude = exact.magnitude(a, b)
    if reference in ("exact", "rounded"):
        return exact.product(a, b), magnitude, a, b
    if isinstance(reference, str):
        on = Unit("simulated", "fma1", reference, reference, reference, block_size=1, arithmetic="rounded",
                  align_rounding="exact", rounding="rne", source="IEEE 754")  # fmt: skip
    else:
        on = Unit(**reference)
    return matmul(a, b, unit=on, rounding="rne", threads=1), magnitude, a, b


def own_matrices(pair: str, m: int, k: int, n: int) -> tuple[Any, Any, str]:
    """The leading parts A (m, k) and B (k, n) of the matrices in two files, and a hash of both files.

    ValueError names the file whose matrix is too small, or no matrix.
    """
    from tcsim import files

    names = [name.strip() for name in pair.split(",")]
    if len(names) != 2:
        raise ValueError(f"matrices of one's own are two files with a comma between; got {pair!r}")
    found, digest = [], sha256()
    for name, shape in zip(names, ((m, k), (k, n)), strict=True):
        x = files.load(name)
        if x.ndim != 2 or x.shape[0] < shape[0] or x.shape[1] < shape[1]:
            raise ValueError(
                f"{name} has shape {x.shape}; this grid takes a matrix of at least {shape[0]} x {shape[1]} from it"
            )
        digest.update(str(x.dtype).encode() + x.tobytes())
        found.append(x[: shape[0], : shape[1]])
    return found[0], found[1], digest.hexdigest()
