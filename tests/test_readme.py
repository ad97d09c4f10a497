"""The README's example prints what it says, and its table is the tables'."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from support.coverage import table
from support.vectors import needs_vectors

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_it_says() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    printed = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert code is not None
    assert printed is not None
    assert len(code[1].splitlines()) == 12
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code[1], {})
    assert out.getvalue() == printed[1]


@needs_vectors
def test_the_coverage_table_is_the_tables() -> None:
    """`cd tests && python -m support.coverage` prints it."""
    assert table() in README
