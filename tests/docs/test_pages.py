"""Every page runs as it stands: what a newcomer copies works and prints what the page says. The site builds without a warning."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import badges
import generate
import pytest
from pages import DOCS, PAGES, ran

import tcsim


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
@pytest.mark.drawn(4)
def test_a_page_runs_and_prints_what_it_says(page: Path) -> None:
    """The four users' ways through: why-two-gpus-differ and fp8-accumulation (an analyst), model-on-a-v100 (an ML engineer),
    check-my-rtl (a hardware engineer), add-a-gpu (a contributor)."""
    blocks = list(ran(page))
    assert blocks
    for kind, code, said, printed in blocks:
        if kind == "python":
            assert printed == (said or printed), code
            assert said or not printed or len(printed) > 400, f"a short output that the page does not show: {printed}"
        else:  # 1: something differs, which is what the page shows
            assert printed.split("\n")[0] in ("exit 0", "exit 1"), f"{code}: {printed}"
            assert "Error:" not in printed


@pytest.mark.parametrize("stem", ["examples", "modules"])
def test_the_examples_of_the_api_are_whole_and_run(stem: str) -> None:
    page = DOCS / "reference" / f"{stem}.md"
    text = page.read_text()
    if stem == "examples":
        wanted = [f"tcsim.{name}" for name in tcsim.__all__]
    else:
        wanted = [f"{name}.{n}" for name in generate.MODULES for n in generate.own(getattr(tcsim, name))]
    assert not [name for name in wanted if not re.search(rf"\b{name}\b", text)], "no example of these"
    plain = text.replace("```python\n", "\n").replace("```\n", "\n")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    result = runner.run(doctest.DocTestParser().get_doctest(plain, {}, "examples", str(page), 0))
    assert result.attempted > 30
    assert result.failed == 0


def test_every_public_name_is_in_the_index() -> None:
    named = {name for names in generate.GROUPS.values() for name in names} | {*generate.MODULES, *generate.FRAMEWORKS}
    assert named == set(tcsim.__all__)
    for name in generate.FRAMEWORKS:
        assert all(
            f"| `{n}` | " in line for n, line in zip(getattr(tcsim, name).__all__, generate.framework(name)[6:], strict=False)
        )


def test_the_gallery_has_a_picture_of_every_study() -> None:
    for name in tcsim.study.studies():
        assert (DOCS / "_static" / "studies" / f"{name}.png").is_file() or name in generate.FIGURES, (
            f"`python docs/pictures.py {name}` draws it"
        )
        assert generate.drawn_stem(name) in tcsim.study.study(name).captions


def test_badges_say_what_is_true() -> None:
    for stem, (name, value) in badges.facts().items():
        assert (badges.FOLDER / f"{stem}.svg").read_text() == badges.badge(name, value), "`python docs/badges.py` redraws it"
        assert f"(docs/_static/badges/{stem}.svg)" in (DOCS.parent / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "notebooks/README.md"])
def test_links_of_the_repository_lead_to_files(page: str) -> None:
    path = DOCS.parent / page
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text())]
    assert not [link for link in links if not re.match(r"[a-z]+:", link) and not (path.parent / link).exists()]


def broken_links(site: Path) -> list[str]:
    """Links and images of the built pages that lead to no file, or to no place in one."""
    places = {p: set(re.findall(r'\bid="([^"]+)"', p.read_text())) for p in site.rglob("*.html")}
    broken = []
    for page, own in places.items():
        for link in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()):
            path, _, at = link.partition("#")
            if re.match(r"[a-z]+:|//", link) or "?" in path or not link:
                continue
            target = (page.parent / unquote(path)).resolve() if path else page
            if not target.exists() or (
                at and target in places and unquote(at) not in (own if target == page else places[target])
            ):
                broken.append(f"{page.relative_to(site)}: {link}")
    return broken


def fetched(site: Path) -> list[str]:
    """Scripts, styles, fonts and pictures that a page takes from elsewhere: a page that people keep shows itself without a network."""
    taken = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["'](https?:)?//[^>]*>""")
    return [
        f"{page.relative_to(site)}: {m[0][:120]}" for page in site.rglob("*.html") for m in taken.finditer(page.read_text())
    ]


@pytest.mark.site
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme")),
    reason="the site is built where pip install '.[docs]' was done",
)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(tmp_path / "html").as_posix() for p in (tmp_path / "html").rglob("*.html")}
    assert not broken_links(tmp_path / "html")
    assert not fetched(tmp_path / "html")
    assert {"index.html", "_generated/units.html", "_generated/api.html", "notebooks/2_rounding.html", "what-if.html"} <= pages
