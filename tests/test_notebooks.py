"""The notebooks as they are committed: short, run whole, and free of anything of the machine that ran them.

That they run is the other test, `pytest --nbmake notebooks`; `python tests/store_notebooks.py` stores their outputs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["cells"])


def outputs(path: Path) -> list[dict[str, Any]]:
    return [output for cell in cells(path) if cell["cell_type"] == "code" for output in cell["outputs"]]


def test_there_are_seven() -> None:
    assert len(NOTEBOOKS) == 7
    page = (FOLDER / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook(path: Path) -> None:
    assert len(cells(path)) <= 18
    assert "".join(cells(path)[-1]["source"]).startswith("## Take-aways\n")
    assert path.stat().st_size < 600_000
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert "QUICK = False" in "".join(code[0]["source"])
    assert code[0]["metadata"]["nbmake"] == {"post_cell_execute": ["QUICK = True"]}
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs(path))
    assert sum("image/png" in output.get("data", {}) for output in outputs(path)) >= 2
    said = "".join(json.dumps(output) for output in outputs(path) if "image/png" not in output.get("data", {}))
    assert not re.search(r"/(tmp|home|root|work|usr)/|0x[0-9a-f]{9,}", said)
