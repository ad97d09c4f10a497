"""Options of the random tests: the seed of what a run draws afresh, said by each test that fails, and how long a soak takes."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from typing import Any

import pytest
from support import fresh


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("random units")
    group.addoption(
        "--soak-seed",
        type=int,
        default=None,
        help="seed of what is drawn afresh; drawn, and shown by each test that fails, if not given",
    )
    group.addoption("--all-cases", action="store_true", help="run every case of the tests that draw theirs")
    group.addoption("--soak-minutes", type=float, default=10.0, help="how long `-m soak` draws units")
    group.addoption("--soak-units", choices=("any", "special"), default="any", help="which: any, or past the plain aligned sum")
    group.addoption("--soak-jobs", type=int, default=1, help="processes that draw them")


def pytest_configure(config: pytest.Config) -> None:
    given: Any = getattr(config, "workerinput", {}).get("soak_seed", config.getoption("soak_seed"))
    fresh.SEED = fresh.SEED if given is None else int(given)
    if config.getoption("numprocesses", None):  # a BLAS of two threads beside another worker waits, spinning: 50 times as long
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        os.environ.setdefault("TCSIM_COMPILE_BESIDE", "0")  # no core is idle there


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["soak_seed"] = fresh.SEED


def pytest_report_header(config: pytest.Config) -> str:
    return f"drawn afresh: --soak-seed {fresh.SEED}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.append(("Drawn afresh", f"--soak-seed {fresh.SEED} draws the same again"))
    return report


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` does not ask for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.option.markexpr or ""
    named = any("::" in name for name in config.args)  # who names a test means it
    if not named and not config.getoption("all_cases"):
        for item in fresh.left_out(items):
            item.add_marker(pytest.mark.soak)
    for item in items:
        if item.get_closest_marker("soak") and "soak" not in asked:
            item.add_marker(pytest.mark.skip(reason="a soak runs by `pytest -m soak`, minutes given by --soak-minutes"))
        if item.get_closest_marker("site") and "site" not in asked:
            item.add_marker(pytest.mark.skip(reason="the documentation is built by `pytest -m site`"))


def pytest_collection_finish() -> None:
    """What was collected stays until the end: Python's collector of cycles need not walk through it again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session")
def fresh_seed() -> int:
    """The seed of this run."""
    return fresh.SEED
