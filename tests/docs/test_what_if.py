"""The what-if page computes what the definition does: its script, run by Node.js, beside `matmul` bit for bit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from pages import DOCS

import tcsim

PAGE = (DOCS / "_static" / "what_if.html").read_text()
HARNESS = """
const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(c => value(chain(c.unit, c.a.map(half), c.b.map(half), 0, c.a.length, zero())))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js runs the page's script, and is not here")
def test_the_page_computes_the_units_bits() -> None:
    rng = np.random.default_rng(5)
    cases, expected = [], []
    for gpu in ("v100", "a100", "h100"):
        for align in ("rz", "rne", "rna", "ru", "rd", "ro", "exact"):
            for rounding in ("rz", "rne", "rna", "ru", "rd", "ro"):
                block, bits = int(rng.integers(1, 17)), int(rng.integers(10, 41))
                unit = tcsim.unit(gpu, "fp16").replace(align_rounding=align, rounding=rounding, block_size=block)
                unit = unit if align == "exact" else unit.replace(fraction_bits=bits)
                a = (rng.standard_normal(24) * 2.0 ** rng.integers(-14, 3, 24) * (rng.random(24) > 0.2)).astype(np.float16)
                b = (rng.standard_normal(24) * 2.0 ** rng.integers(-14, 3, 24)).astype(np.float16)
                cases.append(
                    {
                        "unit": {"block": block, "bits": bits, "align": align, "rounding": rounding},
                        "a": a.tolist(),
                        "b": b.tolist(),
                    }
                )
                expected.append(float(tcsim.matmul(a, b, unit=unit, backend="reference")))
    script = re.search(r"<script>(.*)</script>", PAGE, re.DOTALL)
    assert script is not None
    done = subprocess.run(
        ["node", "-e", script[1] + HARNESS], input=json.dumps(cases), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


def test_the_page_starts_from_the_tables_units() -> None:
    listed = re.search(r"const GPUS = (\{.*?\});", PAGE)
    assert listed is not None
    found = json.loads(re.sub(r"(\w+):", r'"\1":', listed[1]))
    assert found == {gpu: [u.block_size, u.fraction_bits] for gpu in found for u in [tcsim.unit(gpu, "fp16")]}


def test_the_page_needs_no_network() -> None:
    assert not re.search(r"(src|href)\s*=\s*[\"']?https?:", PAGE)
