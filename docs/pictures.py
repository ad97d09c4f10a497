"""Draws the gallery's pictures of the studies that no notebook shows, at quick size: `python docs/pictures.py [NAMES]`."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from generate import FIGURES, drawn_stem
from PIL import Image

import tcsim
from tcsim.analysis.plot import style

FOLDER = Path(__file__).parent / "_static" / "studies"


def draw(name: str) -> None:
    """The picture of a study, in 64 colours."""
    with tempfile.TemporaryDirectory() as out, style():
        outcome = tcsim.study.run(name, quick=True, out=out, figures=False)
        figure = outcome.study.figures(outcome.dataset)[drawn_stem(name)]
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=120)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(64).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for study in sys.argv[1:] or [n for n in tcsim.study.studies() if n not in FIGURES]:
        draw(study)
