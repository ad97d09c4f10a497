"""What people install: the source distribution holds what the README sends them to, and the wheel works away from the repository."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _recent() -> bool:
    try:
        return int(version("setuptools").split(".")[0]) >= 77
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not _recent(), reason="building needs setuptools 77, without a network in this environment"),
]

BUILD = "from setuptools import build_meta as b; import sys; at = sys.argv[1]; b.build_sdist(at); b.build_wheel(at)"
USE = """
import pathlib, sys, numpy as np, tcsim, tcsim_gpu
assert sys.argv[1] in tcsim.__file__ and sys.argv[1] in tcsim_gpu.__file__, tcsim.__file__
assert tcsim.matmul(np.ones((2, 4)), np.ones((4, 2)), unit="v100:fp16", backend="reference").tolist() == [[4, 4], [4, 4]]
from tcsim.cli import main
main(["list", "v100"])
"""


def test_what_is_built_holds_everything_and_works_elsewhere(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    if not files:
        pytest.skip("no checkout to copy")
    for name in files:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    built = tmp_path / "dist"
    built.mkdir()
    subprocess.run([sys.executable, "-c", BUILD, str(built)], cwd=copy, check=True, capture_output=True)
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = [
        n for n in files if n.split("/")[0] in ("tcsim", "gpu", "tests", "docs", "notebooks", "cffi_build") or n.endswith(".md")
    ]
    assert not [name for name in wanted if name not in names]
    site = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    packaged = {p.relative_to(site).as_posix() for p in site.rglob("*")}
    assert {"tcsim/py.typed", "tcsim_gpu/py.typed", "tcsim/_cpfloat.py"} <= packaged
    assert {name for name in files if name.startswith("tcsim/") and not name.endswith("/")} <= packaged
    assert {n.removeprefix("gpu/") for n in files if n.startswith("gpu/tcsim_gpu/")} <= packaged
    done = subprocess.run(
        [sys.executable, "-c", USE, str(site)], cwd=tmp_path, env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 units in" in done.stdout
