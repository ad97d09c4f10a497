"""Products of a language model's forward and backward pass on a GPU, their inputs and outputs kept, computed again on the CPU."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim

FILES = sorted((Path(__file__).parent / "golden" / "models").glob("h200*.npz"))


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


@pytest.mark.parametrize("path", [p.with_suffix(".json") for p in FILES], ids=[p.stem for p in FILES])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_report_says_that_training_ends_in_the_same_bits(path: Path, dtype: str) -> None:
    """What pages and notes claim is what the file says, and its parts agree with each other."""
    found = json.loads(path.read_text())[f"training, {dtype}"]
    assert found["plain run repeats"]
    assert found["finite"]
    assert found["losses equal"] is (found["parameters differing"] == 0) is True
    assert found["first step that differs"] is None
    assert found["parameters"] > 100_000_000
    watched, operations = found["watched"], found["operations of step 0"]
    assert watched["products"] == watched["steps"] * found["first call fits"][1]
    assert (watched["outputs differing"], watched["other strides"], operations["first that differs"]) == (0, 0, None)
    assert operations["results"][0] == operations["results"][1]


@pytest.mark.parametrize(("dtype", "steps"), [("float16", 97), ("bfloat16", 100)])
def test_the_report_says_the_same_of_smollm2s_own_weights(dtype: str, steps: int) -> None:
    found = json.loads((Path(__file__).parent / "golden" / "models" / "h200.json").read_text())
    run = found[f"training from SmolLM2's weights, {dtype}"]
    assert (run["steps"], run["parameters"], run["parameters differing"]) == (steps, 134_515_008, 0)
    assert run["losses equal"]
    assert run["finite"]
    assert run["plain run repeats"]
    assert (run["watched"]["products differing"], run["watched"]["outputs differing"]) == (0, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_report_says_that_the_residual_network_is_predicted(dtype: str) -> None:
    found = json.loads((Path(__file__).parent / "golden" / "models" / "h200.json").read_text())[f"residual network, {dtype}"][
        "library"
    ]
    assert (found["products"], found["equal"], found["outputs"], found["differing"]) == (35, 35, 4_936_424, 0)
    assert sum(row["outputs"] for row in found["rows"]) == 4_936_424
    assert not any(row["differing"] for row in found["rows"])
