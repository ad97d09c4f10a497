"""One cell of a notebook: turn a unit's knobs and see the bits of one block, and how the error grows with k."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tcsim.fp.modes import TABLE
from tcsim.hardware import as_unit
from tcsim.hardware.choices import ALIGN_ROUNDINGS, ROUNDINGS
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.verbs.tracing import trace

SHOWN = 16  # products of a block that the picture has room for


def what_if(unit: Unit | str = "a100:fp16", *, k: int = 2**14, seed: int = 0) -> Any:
    """Sliders for block size, fraction bits, both roundings and k, over a picture that follows them.

    Without ipywidgets (``pip install ipywidgets``), or outside a notebook, the picture of the unit as it is, a matplotlib Figure.
    `unit` takes fp16, bf16 or tf32 inputs and aligns its terms; ValueError for another.
    """
    built = as_unit(unit)
    if built.fraction_bits is None or built.a_format.width < 16 or built.scale is not None:
        raise ValueError(f"{built.label}: what_if turns units that align fp16, bf16 or tf32 terms, such as 'a100:fp16'")
    try:
        import ipywidgets as widgets
    except ImportError:
        return picture(built, k=k, seed=seed)
    from IPython import get_ipython

    return _panel(widgets, built, k, seed) if get_ipython() is not None else picture(built, k=k, seed=seed)


def _panel(widgets: Any, built: Unit, k: int, seed: int) -> Any:
    sliders = {
        "block_size": widgets.IntSlider(built.block_size, 1, 32, description="block size", continuous_update=False),
        "fraction_bits": widgets.IntSlider(built.fraction_bits, 8, 40, description="fraction bits", continuous_update=False),
        "align_rounding": widgets.Dropdown(options=_words(ALIGN_ROUNDINGS), value=built.align_rounding, description="terms"),
        "rounding": widgets.Dropdown(options=_words(ROUNDINGS), value=built.rounding, description="results"),
        "log2_k": widgets.IntSlider(int(np.log2(k)), 6, 18, description="log2 k", continuous_update=False),
    }
    shown = widgets.Output()

    def draw(**values: Any) -> None:
        size = 2 ** values.pop("log2_k")
        from IPython.display import clear_output, display

        with shown:
            clear_output(wait=True)
            display(picture(changed(built, values), k=size, seed=seed))

    out = widgets.interactive_output(draw, sliders)
    return widgets.VBox([widgets.HBox(list(sliders.values())[:2]), widgets.HBox(list(sliders.values())[2:]), shown, out])


def _words(names: Iterable[str]) -> list[tuple[str, str]]:
    """Roundings as people read them, each with its name."""
    meant = {mode.name: mode.meaning.split(",")[0].split(":")[0] for mode in TABLE}
    return [(f"{meant.get(name, 'no bit lost')} ({name})", name) for name in names]


def changed(built: Unit, values: dict[str, Any]) -> Unit:
    """The unit with the sliders' values; with exact terms no fraction bits are left to choose."""
    given = {**values, "fraction_bits": None} if values["align_rounding"] == "exact" else values
    given = {name: value for name, value in given.items() if getattr(built, name) != value}
    return built.replace(**given) if given else built


def error_curve(unit: Unit, k: int, seed: int, *, m: int = 8) -> tuple[list[int], list[float]]:
    """The largest |computed - exact|/exact of an m x m product of matrices on (0, 1], for k from 8 on in octaves."""
    rng = np.random.Generator(np.random.PCG64(seed))
    a, b = (1 - rng.random((k, m)) for _ in "ab")
    from tcsim.fp.round_to import round_to

    x, y = round_to(a.T, unit.a), round_to(b, unit.b)
    ks = [2**i for i in range(3, int(np.log2(k)) + 1)]
    errors = []
    for size in ks:
        exact = x[:, :size].astype(np.float64) @ y[:size].astype(np.float64)
        errors.append(float(np.max(np.abs(matmul(x[:, :size], y[:size], unit=unit, seed=seed) - exact) / exact)))
    return ks, errors


def picture(unit: Unit, *, k: int, seed: int) -> Any:
    """The bits of one block above, the error against k below."""
    from tcsim.analysis.plot import COLOURS, style, subplots
    from tcsim.analysis.trace_figure import draw_block
    from tcsim.fp.round_to import round_to

    rng = np.random.Generator(np.random.PCG64(seed))
    count = min(unit.block_size, SHOWN)
    a = round_to(2 * rng.random(count) - 1, unit.a)
    b = round_to(rng.random(count) * 2.0 ** -rng.integers(0, 12, count), unit.b)
    block = trace(a, b, 0.4375, unit=unit, seed=seed)
    with style():
        figure, axes = subplots(2, 1, width=6.4, height=3.3)
        draw_block(
            axes[0, 0],
            block,
            f"{block.unit}, {count} of a block's {unit.block_size} products" if count < unit.block_size else "",
        )
        ks, errors = error_curve(unit, k, seed)
        curve = axes[1, 0]
        curve.plot(ks, errors, marker="o", color=COLOURS[1])
        last = errors[-1] or np.finfo(float).eps
        for power, label in ((1.0, "k"), (0.5, "√k")):
            line = [last * (x / ks[-1]) ** power for x in ks]
            curve.plot(ks, line, color="black", linestyle=(0, (1, 3)), linewidth=0.8)
            curve.annotate(label, (ks[0], line[0]), textcoords="offset points", xytext=(-4, 4), ha="right", fontsize=7)
        curve.set(xscale="log", yscale="log", xlabel="inner dimension k", ylabel="largest relative error")
        curve.set_xscale("log", base=2)
        figure.draw_without_rendering()
    return figure
