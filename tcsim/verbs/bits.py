"""Arrays as codes and back, for what people hand in and what units give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit

Array = npt.NDArray[Any]


def as_codes(x: Array, fmt: Format, where: str) -> Array:
    """Codes of a format: unsigned integers that fit in it, or values that it holds. ValueError says where one is not."""
    from tcsim.fp.codes import encode

    if x.dtype.kind == "u":
        most = (1 << fmt.width) - 1
        if x.size and int(x.max()) > most:
            at = [int(i) for i in np.argwhere(x > most)[0]]
            raise ValueError(f"{where}{at} = {int(x[tuple(at)]):#x}: a code of {fmt.name} has {fmt.width} bits")
        return np.ascontiguousarray(x.astype(fmt.storage))
    try:
        return np.asarray(encode(x, fmt))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def result_codes(d: Any, unit: Unit) -> Array:
    """The codes of what `matmul` returned."""
    from tcsim.fp.codes import encode

    values = np.asarray(d)
    same = values.dtype.name == unit.out_format.name
    return values.view(unit.out_format.storage) if same else np.asarray(encode(values, unit.out_format))


def hex_code(code: int, fmt: Format) -> str:
    """A code as hexadecimal digits of its format's width."""
    return f"{code:0{-(-fmt.width // 4)}x}"
