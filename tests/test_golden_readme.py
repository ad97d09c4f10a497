"""tests/golden/README.md names every file, and says of those from a GPU or a CPU what their own records say."""

import fnmatch
import json
import re
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (GOLDEN / "README.md").read_text().splitlines()
    if line.startswith("| `")
]
PATTERNS = {pattern: row for row in ROWS for pattern in re.findall(r"`([^`]+)`", row[0])}
FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file() and path.name != "README.md")
MEASURED = sorted(pattern for pattern, row in PATTERNS.items() if len(row) == 7)


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_one_line(name: str) -> None:
    assert len([pattern for pattern in PATTERNS if fnmatch.fnmatchcase(name, pattern)]) == 1


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
def test_every_line_has_a_file(pattern: str) -> None:
    assert any(fnmatch.fnmatchcase(name, pattern) for name in FILES)


@pytest.mark.parametrize("name", MEASURED)
def test_a_line_says_what_the_file_says(name: str) -> None:
    with np.load(GOLDEN / name) as stored:
        meta = json.loads(str(stored["meta"]))
    _, *where, date, seed, made_by = PATTERNS[name]
    keys = ("cpu", "microcode", "kernel") if name.startswith("cpu/") else ("gpu", "driver", "cuda_driver")
    assert (*where, date) == (*(meta[key] for key in keys), meta["date"][:10])
    assert seed == str(meta.get("seed", "not kept; the inputs are"))
    assert made_by


def test_files_with_a_record_of_a_gpu_are_among_the_measured() -> None:
    for name in FILES:
        if name.endswith(".npz"):
            with np.load(GOLDEN / name) as stored:
                assert ("meta" in stored.files) == (name in MEASURED), name
