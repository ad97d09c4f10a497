"""Arrays as codes and back, for what people hand in and what units give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit

Array = npt.NDArray[Any]


def result_codes(d: Any, unit: Unit) -> Array:
    """The codes of what `matmul` returned."""
    from tcsim.fp.codes import encode

    values = np.asarray(d)
    same = values.dtype.name == unit.out_format.name
    return values.view(unit.out_format.storage) if same else np.asarray(encode(values, unit.out_format))


def hex_code(code: int, fmt: Format) -> str:
    """A code as hexadecimal digits of its format's width."""
    return f"{code:0{-(-fmt.width // 4)}x}"
