"""Pages of the documentation as they run: Python blocks in one namespace a page, their output beside the text block that follows,
and `tcsim …` lines of sh blocks. `python tests/docs/pages.py` fills the text blocks in."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(
    p for p in (*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")) if "```python" in p.read_text() or "```sh" in p.read_text()
)
_BLOCK = re.compile(r"```(python|sh)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def ran(page: Path) -> Iterator[tuple[str, str, str | None, str]]:
    """(kind, code, what the page says that it prints, what it printed) of each block, run in a folder of its own."""
    from click.testing import CliRunner

    from tcsim.cli import main

    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for kind, code, said in _BLOCK.findall(page.read_text()):
            if kind == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(code, str(page), "exec"), names)
                yield kind, code, said, out.getvalue()
                continue
            for line in code.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["tcsim"]:
                    result = CliRunner().invoke(main, words[1:])
                    yield kind, line, None, f"exit {result.exit_code}\n{result.output}"


def fill(page: Path) -> None:
    """Write what the blocks printed into the text blocks after them."""
    text = page.read_text()
    for kind, code, said, printed in list(ran(page)):
        if kind == "python" and f"```python\n{code}```\n\n```text" in text:
            text = text.replace(f"```python\n{code}```\n\n```text\n{said}```", f"```python\n{code}```\n\n```text\n{printed}```")
        elif kind == "sh":
            print(code, "->", printed[:60].replace("\n", " | "))
    page.write_text(text)


if __name__ == "__main__":
    import sys

    for page in PAGES:
        if not sys.argv[1:] or page.stem in sys.argv[1:]:
            print(page.name)
            fill(page)
