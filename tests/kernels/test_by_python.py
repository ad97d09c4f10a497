"""The general kernel's sources run by Python, which `tests/mutation.py` tries changes of them with: it gives what the definition gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import fresh

TESTS = Path(__file__).parents[1]
CODE = """
from support.interpreted import drawn, notices
problems = drawn(12, {seed})
assert len(problems) > 4
print(notices([], problems))
wrong = [(problem, ~d) for problem, d in problems[:1]]
print("then" if notices([], wrong) else "a wrong answer is not noticed")
"""


def test_drawn_problems_come_out() -> None:
    """In a process of its own: modules are made anew. A wrong answer is noticed, too."""
    code = CODE.format(seed=fresh.SEED)
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.split("\n")[:2] == ["", "then"], (fresh.SEED, done.stdout, done.stderr[-2000:])
