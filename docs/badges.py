"""Draws the README's badges from what they say: `python docs/badges.py`. Their files lie beside the site's; a test redraws them."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "_static" / "badges"


def facts() -> dict[str, tuple[str, str]]:
    """Name of a badge's file: what it names, and what it says of it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "python": ("python", project["requires-python"].replace(">=", "≥ ")),
        "license": ("license", project["license"]),
    }


def badge(name: str, value: str) -> str:
    """An SVG of two fields."""
    left, right = (round(6.6 * len(text)) + 12 for text in (name, value))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{escape(name)}: {escape(value)}">'
        f'<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="#0072B2"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{escape(name)}</text><text x="{left + right / 2}" y="14">{escape(value)}</text></g></svg>\n'
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for stem, (what, says) in facts().items():
        (FOLDER / f"{stem}.svg").write_text(badge(what, says))
