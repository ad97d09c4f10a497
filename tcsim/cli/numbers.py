"""Verbs that multiply: matmul, trace, compare, check, vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

import tcsim
from tcsim.cli.group import DIFFERS, UNIT, json_option, main, say_json

unit_option = click.option("--unit", type=UNIT, required=True, help='such as a100:fp16 or "h200:e4m3:fp16@mma", or unit.json')
rounding_option = click.option("--rounding", help="round values that the format cannot hold: rne rz ru rd … [they are errors]")
schedule_option = click.option("--schedule", default="sequential", show_default=True,
                               help="sequential, splitk:SPLITS[:TILE_K], blocked:B[:SUM]")  # fmt: skip


def parse_schedule(text: str) -> Any:
    """The schedule that a text means: "splitk:3:64", "blocked:128:float64"."""
    name, *given = text.lower().split(":")
    kinds = {"sequential": (0, 0), "splitk": (1, 3), "blocked": (1, 2)}
    if name not in kinds or not kinds[name][0] <= len(given) <= kinds[name][1]:
        raise ValueError(f"schedule {text!r} is none of sequential, splitk:SPLITS[:TILE_K[:REDUCE]], blocked:B[:SUM]")
    made = {"sequential": tcsim.Sequential, "splitk": tcsim.SplitK, "blocked": tcsim.Blocked}[name]
    return made(*(int(x) if re.fullmatch(r"-?\d+", x) else x for x in given))


def _array(path: str | None) -> Any:
    from tcsim.files import load

    return None if path is None else load(path)


def _vector(text: str, where: str, fmt: Any) -> Any:
    """Numbers of the command line or of a file: values, or codes where they are hexadecimal."""
    import numpy as np

    from tcsim.files import SUFFIXES, load, parse_numbers

    given = (
        load(text).ravel() if re.search(rf"({'|'.join(map(re.escape, SUFFIXES))})(:|$)", text) else parse_numbers(text, where)
    )
    if given.dtype.kind != "u":
        return given
    for i in np.flatnonzero(given >> (8 * np.dtype(fmt.storage).itemsize - 1) > 1)[:1]:
        raise ValueError(f"{where}[{i}] = {given[i]:#x}: a code of {fmt.name} has {fmt.width} bits")
    return given.astype(fmt.storage)


@main.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@unit_option
@click.option("--c", help="file of the accumulator")
@click.option("--out", type=click.Path(path_type=Path), help="write the product here, as .npy")
@schedule_option
@rounding_option
@click.option("--backend", default="cpu", show_default=True, help="cpu, reference, cuda, hardware")
@click.option("--seed", default=0, show_default=True)
@json_option
def matmul(a: str, b: str, unit: Any, c: str | None, out: Path | None, schedule: str, rounding: str | None, backend: str,
           seed: int, as_json: bool) -> None:  # fmt: skip
    """C + A·B with every bit as a unit computes it.

    Also how far that is from the exact product. A, B and C are files: .npy, .npz:NAME, .mtx, .safetensors:NAME, .csv, .hex.

    \b
      tcsim matmul a.npy model.safetensors:lm_head --unit v100:fp16 --rounding rne --out d.npy
    """
    import numpy as np

    from tcsim.verbs.bits import hex_code, result_codes

    x, y, z = _array(a), _array(b), _array(c)
    d = np.asarray(
        tcsim.matmul(x, y, z, unit=unit, schedule=parse_schedule(schedule), rounding=rounding, backend=backend, seed=seed)
    )
    error = _error(x, y, d, unit, rounding) if z is None and d.ndim == 2 else None
    if out is not None:
        np.save(out, d)
    first = [hex_code(int(code), unit.out_format) for code in result_codes(d, unit).ravel()[:4]]
    if as_json:
        document = {"unit": unit.label, "schedule": schedule, "shape": d.shape, "dtype": d.dtype.name, "first_codes": first,
                    "error": error, "out": None if out is None else str(out)}  # fmt: skip
        say_json(document)
        return
    click.echo(f"{unit.label}: {d.dtype.name} of shape {d.shape}, first codes {' '.join(first)}")
    if error is not None:
        click.echo(f"largest |C - Ĉ|/(|A||B|) against the exact product of the rounded inputs: {error:.2e}")
    if out is not None:
        click.echo(f"wrote {out}")


def _error(x: Any, y: Any, d: Any, unit: Any, rounding: str | None) -> float | None:
    from tcsim.analysis import exact, metrics
    from tcsim.fp.codes import decode, encode

    left, right = (
        z.astype(float) if fmt.integer else decode(z if z.dtype.kind == "u" else encode(z, fmt, rounding=rounding), fmt)
        for z, fmt in ((x, unit.a_format), (y, unit.b_format))
    )
    error = metrics.max_componentwise(d, exact.product(left, right), exact.magnitude(left, right))
    return error if error == error else None


@main.command()
@click.argument("unit", type=UNIT)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--c", default="0", show_default=True, help="the accumulator: a number, or a code such as 0x3f800000")
@click.option(
    "--block", type=int, help="the block to open, from 0 [all, if there are at most 4; else a line each and the last]"
)
@rounding_option
@click.option("--scale-a", help="the block scales of A, of a unit that takes them: numbers or codes, one or one a block [1]")
@click.option("--scale-b", help="those of B")
@click.option("--figure", type=click.Path(path_type=Path), help="draw the bits into this .png or .svg")
@json_option
def trace(unit: Any, a: str, b: str, c: str, block: int | None, rounding: str | None, scale_a: str | None, scale_b: str | None,
          figure: Path | None, as_json: bool) -> None:  # fmt: skip
    """A dot product c + A·B, block by block.

    Every term, its shift, the bits dropped, the sum, the rounding. A and B are numbers apart by commas, codes where they are hexadecimal, or files.

    \b
      tcsim trace v100:fp16 1.5,1,3 1.25,0x0p0,2
      tcsim trace h200:e4m3 0x38,0x08 0x38,0x7e --c 0x3f800000
      tcsim trace a100:fp16 a.npy b.npy --block 17
      tcsim trace b200:nvfp4 6,1,0.5 2,3,4 --scale-a 1.5 --scale-b 0.25
    """
    from tcsim.verbs.bits import hex_code, result_codes
    from tcsim.verbs.tracing import block_places, running

    x, y = _vector(a, "A", unit.a_format), _vector(b, "B", unit.b_format)
    start = _vector(c, "c", unit.out_format)[0]
    codes = unit.a_format.integer and x.dtype.kind == "u"
    count = len(list(block_places(unit, x.size)))
    scales = {name: _scale(text, name, unit) for name, text in (("scale_a", scale_a), ("scale_b", scale_b))}
    wanted = [block] if block is not None else list(range(count)) if count <= 4 else [count - 1]
    shown = [tcsim.trace(x, y, start, unit=unit, block=i, rounding=rounding, codes=codes, **scales) for i in wanted]
    sums = running(x, y, start, unit=unit, rounding=rounding, **scales) if count > 4 and block is None and not codes else []
    if figure is not None:
        from tcsim.analysis.trace_figure import bits

        bits(*shown).savefig(figure, dpi=200)
    if as_json:
        say_json([_block(found) for found in shown])
        return
    for k, value in sums:
        click.echo(f"after k = {k}: {hex_code(int(result_codes(value, unit)), unit.out_format)}  {value!s}")
    click.echo("\n\n".join(map(str, shown)))


def _scale(text: str | None, name: str, unit: Any) -> Any:
    """Block scales of the command line; 1 for every block where none are given."""
    if unit.scale_format is None:
        if text is not None:
            raise ValueError(f"--{name.replace('_', '-')}: {unit.label} takes no block scales")
        return None
    return _vector(text or "1", f"--{name.replace('_', '-')}", unit.scale_format)


def _block(found: Any) -> dict[str, Any]:
    names = ("name", "factors", "value", "exponent", "shift", "kept", "dropped")
    terms = [
        {**dict(zip(names, row, strict=True)), **({} if t.scale is None else {"scale": float(t.scale)})}
        for row, t in zip(found.table(), found.terms, strict=True)
    ]
    return {"unit": found.unit, "terms": terms, "emax": found.emax, "quantum": found.quantum, "result": found.result,
            "code": hex(found.code)}  # fmt: skip


@main.command()
@click.argument("first", metavar="UNIT|GPU")
@click.argument("second", metavar="UNIT|GPU")
@click.option("--a", help="file of A; drawn unless given")
@click.option("--b", help="file of B")
@click.option("--format", "fmt", default="float16", show_default=True, help="the input format, where a GPU is named alone")
@click.option("--distribution", default="gauss", show_default=True, help="uniform-positive, uniform-signed, gauss, phi …")
@click.option("--shape", default="64x64x1024", show_default=True, help="MxNxK of drawn matrices")
@schedule_option
@click.option("--backend", default="cpu", show_default=True, help="cpu, reference, cuda")
@click.option("--seed", default=0, show_default=True)
@click.option("--figure", type=click.Path(path_type=Path), help="draw into this .png or .svg")
@json_option
def compare(first: str, second: str, a: str | None, b: str | None, fmt: str, distribution: str, shape: str, schedule: str,
            backend: str, seed: int, figure: Path | None, as_json: bool) -> None:  # fmt: skip
    """Where and how far two units differ on one product.

    In which fields, in how many outputs, by how many ulps, and in which block first. Exit code 1 where any bit differs.

    \b
      tcsim compare v100 a100
      tcsim compare h100:fp8_e4m3 b200:fp8_e4m3 --shape 64x64x4096 --figure why.png
      tcsim compare a100:bf16 "a100:bf16,rounding=rne" --a x.npy --b w.safetensors:layer.weight
    """
    from tcsim.verbs.compare import compare as run

    size = re.fullmatch(r"(\d+)[x,](\d+)[x,](\d+)", shape)
    if size is None:
        raise ValueError(f"shape is written MxNxK, such as 64x64x1024; got {shape!r}")
    m, n, k = (int(x) for x in size.groups())
    found = run(first, second, _array(a), _array(b), fmt=fmt, distribution=distribution, shape=(m, n, k),
                schedule=parse_schedule(schedule), backend=backend, seed=seed)  # fmt: skip
    if figure is not None:
        found.figure().savefig(figure, dpi=200)
    if as_json:
        say_json(found.document())
    else:
        click.echo(str(found))
    raise SystemExit(DIFFERS if found.differing else 0)


@main.command()
@click.argument("vectors")
@click.option("--unit", help="a unit, unit.json, or a GPU where groups are named after formats [what the file says]")
@click.option("--k", type=int, help="length of the dot products, where a line's width does not tell")
@click.option("--backend", default="cpu", show_default=True, help="cpu, reference, cuda")
@json_option
def check(vectors: str, unit: str | None, k: int | None, backend: str, as_json: bool) -> None:
    """Compare anybody's vectors with a unit.

    Bit by bit; exit code 1 where one differs, the first mismatch opened up. VECTORS is a .npz with keys a, b, c, d (or NAME.a …: see `tcsim vectors`), or text whose lines are the k words of a, the k of
    b, c and d of one dot product.

    \b
      tcsim check rtl_out.hex --unit h200:e4m3
      tcsim check V100.npz --unit v100
      tcsim check mine.npz --unit unit.json --json
    """
    from tcsim.verbs.check import check as run

    found = run(vectors, unit, k=k, backend=backend)
    if as_json:
        groups = [{"name": g.name, "unit": g.unit.label, "outputs": g.outputs, "differing": g.differing,
                   "first": None if g.first is None else {"index": list(g.first.index), "expected": hex(g.first.expected),
                                                          "computed": hex(g.first.computed)}} for g in found.groups]  # fmt: skip
        say_json(
            {"path": found.path, "outputs": found.outputs, "differing": found.differing, "groups": groups, "notes": found.notes}
        )
    else:
        click.echo(str(found))
    raise SystemExit(0 if found else DIFFERS)


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@unit_option
@click.option("--format", "form", help="npz or hex [the ending of OUT]")
@click.option("--rows", default=100, show_default=True, help="dot products from each distribution")
@click.option("--k", type=int, help="their length [one instruction's]")
@click.option(
    "--distribution", "distributions", multiple=True, help="such as cancel or zero-factors; more than once for several [all]"
)
@click.option("--seed", default=0, show_default=True)
@click.option("--backend", default="cpu", show_default=True, help="cpu, or reference: the definition")
def vectors(
    out: Path, unit: Any, form: str | None, rows: int, k: int | None, distributions: tuple[str, ...], seed: int, backend: str
) -> None:
    """Write test vectors of a unit.

    Inputs that try hard, and the bits that must come out.

    \b
      tcsim vectors bench.hex --unit "h200:e4m3,block_size=16" --rows 1000
      tcsim vectors bench.npz --unit a100:bf16 --k 64 --distribution cancel
    """
    from tcsim.verbs.vectors import vectors as make
    from tcsim.verbs.vectors import write_vectors

    groups = make(unit, rows=rows, k=k, distributions=distributions or None, seed=seed, backend=backend)
    write_vectors(groups, unit, out, form=form, seed=seed)
    outputs = sum(len(g.d) for g in groups)
    click.echo(f"wrote {out}: {outputs} dot products of length {groups[0].a.shape[1]} on {unit.label}")
