"""Products of a language model's forward and backward pass on a GPU, their inputs and outputs kept, computed again on the CPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim

FILES = sorted((Path(__file__).parent / "golden" / "models").glob("*.npz"))


def stored(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(path) as file:
        return json.loads(str(file["text"])), {name: file[name] for name in file.files if name != "text"}


CASES = [(path, i) for path in FILES for i in range(len(stored(path)[0]["calls"]))]


@pytest.mark.parametrize(("path", "index"), CASES, ids=[f"{path.stem}-{i}" for path, i in CASES])
def test_a_models_product_is_reproduced(path: Path, index: int) -> None:
    """Chains of the fp16 or bf16 unit in ascending k from zero, rounded once to the tensor's format."""
    text, arrays = stored(path)
    call = text["calls"][index]
    assert (call["schedule"], call["block"]) == ("Sequential()", 0)
    unit = tcsim.unit(text["about"]["table"], call["dtype"])
    a, b, d = (arrays[f"{index}.{name}"] for name in "abd")
    got = tcsim.encode(tcsim.matmul(a, b, unit=unit), call["dtype"], rounding="rne")
    np.testing.assert_array_equal(got, d)


def test_both_formats_and_both_passes_are_kept() -> None:
    for path in FILES:
        calls = stored(path)[0]["calls"]
        assert {(c["dtype"], c["backward"]) for c in calls} == {(f, p) for f in ("float16", "bfloat16") for p in (False, True)}
