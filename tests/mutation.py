"""Change the program a little, many times, and list the changes that no test notices.

    python tests/mutation.py [reference] [listed] [schemes] [rows] [kernels] [FILE.py …] [--jobs 2] [--limit N] [--start N]

Each mutant is made in a copy of the package without the hardware vectors beside it (as an outsider's checkout), and the tests
named for its file must fail. `listed`: those of LISTED, written by hand; `schemes`: those among them outside the reference. `reference` and a file's name: automatic ones of the
file's syntax tree (±1 in a constant, another comparison, and for or, a dropped not, plus for minus, min for max). `rows`: every
field of every row of the table to its next values, beside tests/golden/rows (in this process). `kernels`: automatic ones of the
general kernel, run by Python beside tests/golden/rows and drawn units, seconds each. A kernel's file named by itself is compiled anew for every
mutant, into a cache of the copy's own: minutes each.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL, TimeoutExpired, run
from types import ModuleType

from mutants.automatic import automatic, places
from mutants.listed import listed
from mutants.mutant import REFERENCE, ROOT, Mutant

KERNELS = tuple(
    f"tcsim/kernels/general/{name}.py"
    for name in (
        "any_width",
        "blocks",
        "cuts",
        "numbers",
        "two_terms",
        "panel",
        "rounded",
        "row",
        "spec",
        "two_stage",
        "walks",
        "limbs",
    )
)


class Copy:
    """A copy of the package and its tests in a temporary folder, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("tcsim", "gpu", "tests", "cffi_build"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "h200.npz", "h200-nan.npz")
            )
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder / name)
        (folder / "tests" / "golden" / "sparse").mkdir(exist_ok=True)
        for name in ("sparse/h200.npz", "h200.npz"):
            shutil.copy(ROOT / "tests" / "golden" / name, folder / "tests" / "golden" / name)

    def survives(self, mutant: Mutant, seconds: float = 900) -> bool:
        """Whether every test named for the mutant's file passes in spite of it; one that takes too long has noticed."""
        path = self.folder / mutant.file
        original = path.read_text()
        path.write_text(mutant.text)
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        if "kernels" in mutant.file:
            environment["XDG_CACHE_HOME"] = str(self.folder / "cache")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--all-cases", *mutant.tests]
        try:
            done = run(command, cwd=self.folder, env=environment, stdout=DEVNULL, stderr=DEVNULL, timeout=seconds, check=False)
            return done.returncode == 0
        except TimeoutExpired:
            return False
        finally:
            path.write_text(original)


def rows() -> list[str]:
    """Changes of one field of one row of the table that the stored bits do not show, but for those listed there as moot."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.adversarial import changed, neighbours, record
    from support.adversarial import run as code_of
    from support.golden_rows import read
    from test_golden_rows import key

    import tcsim

    stored_of = {key(row): stored for stored in read() for row in stored.rows}
    survivors, made = [], 0
    for unit in tcsim.units():
        stored = stored_of[key(unit)]
        moot = [(name, tuple(value) if isinstance(value, list) else value) for (name, value), _ in stored.moot]
        for name, value in neighbours(unit):
            other = changed(unit, name, value)
            if other is None or record(other) == record(unit):
                continue
            made += 1
            if all(code_of(other, case) == code for case, code in stored.cases) and (name, value) not in moot:
                survivors.append(f"{unit.label}: {name} = {value!r}")
    print(f"rows: {made} changes of one field, {len(survivors)} survive", flush=True)
    return survivors


class Slow(Exception):
    """A mutant that does not come to an end."""


def shown_by_rows(mutant: Mutant) -> bool:
    """Whether tests/golden/rows shows a mutant of the reference: replayed in this process, which is quick.

    A code that differs, an exception and a loop without an end all show it.
    """
    from support.adversarial import run as code_of
    from support.golden_rows import read

    names = ["tcsim.reference.values", "tcsim.reference.blocks", "tcsim.reference.dot"]
    saved = {name: sys.modules[name] for name in names}

    def stop(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        for name in names:
            file = name.replace(".", "/") + ".py"
            module = sys.modules[name] = ModuleType(name)
            exec(compile(mutant.text if file == mutant.file else (ROOT / file).read_text(), file, "exec"), module.__dict__)
        changed = sys.modules["tcsim.reference.dot"]
        return any(
            code_of(stored.unit, case, changed.multiply_reference) != code for stored in read() for case, code in stored.cases
        )
    except Exception:
        return True
    finally:
        signal.alarm(0)
        sys.modules.update(saved)


def not_shown_by_rows(mutants: list[Mutant]) -> list[Mutant]:
    """Those mutants of the reference that the stored bits do not show, and all others: what the tests are still asked about."""
    sys.path.insert(0, str(ROOT / "tests"))
    import tcsim.reference.dot  # noqa: F401  (its modules are replaced and put back)

    left = [mutant for mutant in mutants if mutant.file not in REFERENCE or not shown_by_rows(mutant)]
    print(f"{len(mutants) - len(left)} of {len(mutants)} mutants are shown by tests/golden/rows", flush=True)
    return left


def kernels(minutes: float, seed: int) -> list[str]:
    """Changes of the general kernel, drawn until the time is up, that neither tests/golden/rows nor drawn units show; run by Python, not compiled."""
    counts = {file: sum(1 for _ in places(ast.parse((ROOT / file).read_text()))) for file in KERNELS}
    order = [(file, i) for file, count in counts.items() for i in range(count)]
    random.Random(seed).shuffle(order)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        sys.dont_write_bytecode = True
        sys.path[:0] = [folder, str(Path(folder) / "tests")]
        from support.golden_rows import read
        from support.interpreted import drawn, notices

        stored, problems, survivors, tried = read(), drawn(400), [], 0
        reason = notices(stored, problems, 900)
        if reason:
            raise RuntimeError(f"the kernel run by Python fails without any mutation: {reason}")
        started = time.monotonic()
        for file, i in order:
            if time.monotonic() - started > 60 * minutes:
                break
            mutant = next(automatic(file, {i}))
            path, tried = copy.folder / file, tried + 1
            original = path.read_text()
            path.write_text(mutant.text)
            reason = notices(stored, problems)
            path.write_text(original)
            print(f"{tried} {'noticed' if reason else 'SURVIVES'} {file} {mutant.label} [{reason}]", flush=True)
            survivors += [] if reason else [f"{file} {mutant.label}"]
    print(f"kernels: {tried} of {len(order)} mutants (seed {seed}), {len(survivors)} survive", flush=True)
    return survivors


def judged(mutants: list[Mutant], jobs: int) -> list[Mutant]:
    """The survivors, each printed as it is found."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(_made(Path(folder) / str(i))) for i in range(jobs)]
        plain = [Mutant(file, "unchanged", (ROOT / file).read_text()) for file in dict.fromkeys(m.file for m in mutants)]
        for mutant in plain:
            if not copies[0].survives(mutant):
                raise RuntimeError(f"the tests for {mutant.file} fail without any mutation: {' '.join(mutant.tests)}")
        done: list[tuple[Mutant, bool]] = []

        def work(i: int) -> None:
            for mutant in mutants[i::jobs]:
                started = time.perf_counter()
                survives = copies[i].survives(mutant)
                done.append((mutant, survives))
                word = "SURVIVES" if survives else "noticed"
                print(
                    f"{len(done)}/{len(mutants)} {word} {mutant.file} {mutant.label} ({time.perf_counter() - started:.0f} s)",
                    flush=True,
                )

        list(pool.map(work, range(jobs)))
    return [mutant for mutant, survives in done if survives]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", default=["listed"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30.0, help="of kernels, at most")
    parser.add_argument("--seed", type=int, default=0, help="of kernels: which are tried first")
    asked = parser.parse_args()
    survivors: list[str] = []
    mutants: list[Mutant] = []
    for what in asked.what:
        if what == "rows":
            survivors += rows()
        elif what == "listed":
            mutants += listed()
        elif what == "kernels":
            survivors += kernels(asked.minutes, asked.seed)
        elif what == "schemes":
            mutants += [m for m in listed() if m.file not in REFERENCE]
        else:
            for file in REFERENCE if what == "reference" else (what,):
                mutants += automatic(file)
    mutants = not_shown_by_rows(mutants[asked.start :][: asked.limit])
    if mutants:
        survivors += [f"{m.file} {m.label}" for m in judged(mutants, asked.jobs)]
    print(f"{len(survivors)} survivors", *survivors, sep="\n  ")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
