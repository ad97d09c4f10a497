"""A changed file, and the tests that must notice the change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ("tests/reference/test_reference_rules.py", "tests/test_golden_rows.py", "tests/kernels/test_by_hand.py")

# What `shown_by_rows` has replayed already, and what asks the kernels.
SKIP = ("kernel", "no_field", "a_fraction_equal", "rows_of_the_table", "what_ifs_give", "cpu", "words_of")
SKIP_SLOW = ("-k", " and ".join(f"not {name}" for name in SKIP))

# The tests that must notice a change of a file; pytest's arguments.
TESTS: dict[str, tuple[str, ...]] = {
    "tcsim/reference/values.py": (*GOLDEN, *SKIP_SLOW),
    "tcsim/reference/blocks.py": (*GOLDEN, *SKIP_SLOW),
    "tcsim/reference/dot.py": (*GOLDEN, "tests/reference/test_definition_schedules.py", *SKIP_SLOW),
    "tcsim/schedule.py": ("tests/test_schedule.py", "tests/reference/test_definition_schedules.py"),
    "tcsim/fp/philox.py": ("tests/fp/test_philox.py",),
    "tcsim/fp/formats.py": ("tests/fp/test_formats.py",),
    "tcsim/sparse.py": ("tests/test_wrong_arguments.py", "tests/test_sparse.py"),
    "tcsim/arguments.py": ("tests/test_wrong_arguments.py",),
    "tcsim/quantize.py": ("tests/schemes/test_scheme_constants.py", "-k", "saturates or quotients"),
    "tcsim/schemes/bounds_papers.py": ("tests/schemes/test_scheme_constants.py", "-k", "gamma"),
    "tcsim/schemes/ozaki.py": ("tests/schemes/test_scheme_constants.py", "-k", "slices"),
    "tcsim/schemes/ozaki_crt.py": ("tests/schemes/test_scheme_constants.py", "-k", "int32"),
}
REFERENCE = ("tcsim/reference/values.py", "tcsim/reference/blocks.py", "tcsim/reference/dot.py")
KERNEL_TESTS = ("tests/test_golden_rows.py", "-k", "kernels")


@dataclass(frozen=True)
class Mutant:
    """A file and its changed text, with what was changed."""

    file: str
    label: str
    text: str

    @property
    def tests(self) -> tuple[str, ...]:
        return TESTS.get(self.file, KERNEL_TESTS)
