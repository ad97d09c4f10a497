"""The README's badges, drawn here from what the package says of itself: `python docs/badges.py` writes them."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LEFT, _RIGHT, _HEIGHT, _LETTER = "#555", "#0072B2", 20, 6.6


def badges() -> dict[str, str]:
    """SVG by file name: the versions of Python that the metadata name, the licence, and what equal means here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [c.rsplit(" ", 1)[1] for c in project["classifiers"] if c.startswith("Programming Language :: Python :: 3.")]
    said = {
        "python": ("Python", " | ".join(versions)),
        "licence": ("licence", project["license"]),
        "bits": ("compared", "bit for bit"),
    }
    return {f"badge-{name}.svg": _drawn(*words) for name, words in said.items()}


def _drawn(left: str, right: str) -> str:
    one, two = (round(len(text) * _LETTER) + 12 for text in (left, right))
    place = _HEIGHT - 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + two}" height="{_HEIGHT}" role="img" aria-label="{left}: {right}">'
        f'<rect width="{one}" height="{_HEIGHT}" fill="{_LEFT}"/><rect x="{one}" width="{two}" height="{_HEIGHT}" fill="{_RIGHT}"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{one / 2:g}" y="{place}">{left}</text><text x="{one + two / 2:g}" y="{place}">{right}</text></g></svg>\n'
    )


if __name__ == "__main__":
    for name, text in badges().items():
        (ROOT / "docs" / "_static" / name).write_text(text)
