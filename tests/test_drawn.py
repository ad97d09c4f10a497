"""Which cases of a test a run draws, and that the others are not lost."""

from __future__ import annotations

import pytest
from support import fresh

pytest_plugins = ["pytester"]

CASES = """
import pytest

@pytest.mark.parametrize("i", range(40))
@pytest.mark.drawn(7)
def test_some(i: int) -> None:
    pass

@pytest.mark.parametrize("i", [0, *(pytest.param(i, marks=pytest.mark.soak) for i in range(1, 9))])
@pytest.mark.drawn(1)
def test_one(i: int) -> None:
    pass

@pytest.mark.parametrize("i", range(5))
def test_all(i: int) -> None:
    pass
"""


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[set[str], int]:
    """The cases that ran, and how many were skipped."""
    result = pytester.inline_run("-p", "no:cacheprovider", *arguments)
    passed, skipped, failed = result.listoutcomes()
    assert not failed
    return {report.nodeid.partition("::")[2] for report in passed}, len(skipped)


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with this one's conftest and a test of forty cases; a run in it leaves the seed of this one as it is."""
    monkeypatch.setattr(fresh, "SEED", fresh.SEED)
    pytester.makeconftest((fresh.TESTS / "conftest.py").read_text())
    pytester.makepyfile(test_cases=CASES)
    pytester.makeini("[pytest]\nmarkers =\n    soak\n    site\n    drawn(count)")
    return pytester


def test_each_run_draws_its_own_and_a_soak_runs_the_others(folder: pytest.Pytester) -> None:
    first, skipped = run(folder, "--soak-seed", "1")
    assert (len(first), skipped) == (7 + 1 + 5, 33 + 8)
    assert "test_one[0]" in first
    assert run(folder, "--soak-seed", "1")[0] == first
    assert run(folder, "--soak-seed", "2")[0] != first
    others, _ = run(folder, "--soak-seed", "1", "-m", "soak")
    assert len(others) == 33 + 8
    assert not first & others


def test_who_names_a_test_or_asks_for_all_cases_runs_them(folder: pytest.Pytester) -> None:
    ran, skipped = run(folder, "test_cases.py::test_some")
    assert (len(ran), skipped) == (40, 0)
    ran, skipped = run(folder, "--all-cases")
    assert (len(ran), skipped) == (40 + 1 + 5, 8)
