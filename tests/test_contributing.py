"""What CONTRIBUTING says suffices to add a GPU, a scheme, a study, a field does: each is added to a copy of the package, in those files."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LISTED = {
    row[0]: row[1] for row in re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
}

GPU = {
    "tcsim/hardware/gpus.py": """
GPUS = (*GPUS, Gpu("toy", 77, (r"TOY 9000",), ("toy-ti",), peak_rates=_rates(1.0, 2.0, 3.0)))
""",
    "tcsim/hardware/ampere_ada.py": """
UNITS = (*UNITS, UNITS[0].replace(gpu="toy", block_size=3, evidence="S", source="a toy's data sheet"))
""",
}
USE_GPU = """
import numpy as np, tcsim
unit = tcsim.unit("toy-ti", "float16")
assert (unit.gpu, unit.block_size) == ("toy", 3) and unit in tcsim.units("toy")
d = tcsim.matmul(np.ones((2, 7)), np.ones((7, 2)), unit=unit, backend="reference")
assert (d == 7).all()
assert "3 products" in unit.explain()
"""

SCHEME = {
    "tcsim/schemes/recipes.py": '''

def toy(*, fmt: str = "float16") -> Recipe:
    """A toy's scheme: one product."""
    return plain(fmt=fmt)


RECIPES["toy"] = toy
''',
}
USE_SCHEME = """
import numpy as np, tcsim
from tcsim.schemes.gemm import gemm, schemes
assert schemes()["toy"].startswith("A toy's scheme")
c, record = gemm(np.ones((2, 5)), np.ones((5, 2)), "toy", unit="a100", backend="reference")
assert (c == 5).all() and record.gemms == 1
"""

STUDY = {
    "tcsim/studies/__init__.py": 'STUDIES["toy-squares"] = "toy_squares"\n',
    "tcsim/studies/toy_squares.py": '''"""Squares."""

import numpy as np
import xarray as xr

from tcsim.studies.framework.base import Claim, Option, Study

STUDY = Study(
    name="toy-squares",
    title="Squares",
    reproduces="nothing",
    cells=lambda p: [{"x": x} for x in range(p["count"])],
    compute=lambda cell: {"square": cell["x"] ** 2},
    dataset=lambda p, results: xr.Dataset({"square": ("x", [r["square"] for _, r in results])}),
    claims=lambda d: [Claim("squares grow", bool((np.diff(d.square) > 0).all()), "by difference", "this project")],
    figures=lambda d: {},
    options=(Option("count", 6, 3, "how many"),),
)
''',
}
USE_STUDY = """
import sys
from tcsim.cli import main
sys.argv = ["tcsim", "study", "toy-squares", "--quick", "--out", "toy-results"]
main()
"""

WHAT_IF = {  # after a text, another
    "tcsim/hardware/parts.py": {
        """        "align by. None for their own.",
        None,
    )
""": """    doubled: bool = flag("Whether every product counts twice.", False)
""",
    },
    "tcsim/reference/dot.py": {
        """        **one_of("parity_split", False, True),
""": """        **one_of("doubled", False, True),
""",
        """for x, y in pairs]
        if unit.scale is None:
""": """            return [p._replace(lsb=p.lsb + unit.doubled, exponent=p.exponent + unit.doubled) for p in plain]
        if unit.scale is None:
""",
    },
}
USE_WHAT_IF = """
import numpy as np, tcsim
from tcsim_gpu.gates import GENERAL
row = tcsim.unit("a100", "float16")
unit = row.replace(doubled=True)
d = tcsim.matmul(np.ones((2, 7)), np.ones((7, 2)), 1.0, unit=unit, backend="reference")
assert (d == 15).all()
assert row.diff(unit) == {"doubled": (False, True)} and unit.parts != row.parts and hash(unit) != hash(row)
assert "doubled=True" in repr(unit) and unit.as_dict()["doubled"] and "counts twice" in tcsim.Unit.__doc__
assert GENERAL.stops_at(unit) == "doubled"
try: row.replace(doubled=2)
except ValueError as error: assert "doubled=2: it must be True or False" in str(error)
else: raise SystemExit(1)
"""


def changed_copy(folder: Path, files: Mapping[str, str | Mapping[str, str]]) -> None:
    """A copy of the package with a text written at the end of each file, or texts, each after the one that it follows."""
    shutil.copytree(ROOT / "tcsim", folder / "tcsim", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        if isinstance(text, str):
            with (folder / name).open("a") as file:
                file.write(text)
        else:
            whole = (folder / name).read_text()
            for before, new in text.items():
                assert whole.count(before) == 1, (name, before)
                whole = whole.replace(before, before + new)
            (folder / name).write_text(whole)


def run_there(folder: Path, script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_listed(chore: str, name: str) -> bool:
    """Whether the row of CONTRIBUTING's table names the file, its folder, or what kind of file it is."""
    return (
        Path(name).name in LISTED[chore] or f"{Path(name).parent.as_posix()}/" in LISTED[chore] or "generation" in LISTED[chore]
    )


@pytest.mark.parametrize(
    ("chore", "files", "script"),
    [
        ("a GPU", GPU, USE_GPU),
        ("a scheme", SCHEME, USE_SCHEME),
        ("a study", STUDY, USE_STUDY),
        ("a what-if that no field can say", WHAT_IF, USE_WHAT_IF),
    ],
    ids=["gpu", "scheme", "study", "what-if"],
)
def test_a_toy_needs_only_the_listed_files(chore: str, files: dict[str, Any], script: str, tmp_path: Path) -> None:
    assert len(files) <= 3
    assert all(is_listed(chore, name) for name in files)
    changed_copy(tmp_path, files)
    run_there(tmp_path, script)


def test_the_copy_without_the_files_has_no_toys(tmp_path: Path) -> None:
    changed_copy(tmp_path, {})
    run_there(tmp_path, "import tcsim\ntry: tcsim.unit('toy', 'float16')\nexcept ValueError: pass\nelse: raise SystemExit(1)")
