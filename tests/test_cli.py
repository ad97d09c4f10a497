"""The command line as a user meets it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

import tcsim
from tcsim.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_list_has_a_line_for_every_unit() -> None:
    result = invoke("list")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == len(tcsim.units()) + 1
    assert len(invoke("list", "V100").output.splitlines()) == len(tcsim.units("v100")) + 1


def test_show_prints_the_record_and_the_prose() -> None:
    result = invoke("show", "a100", "float16")
    assert result.exit_code == 0
    assert "fraction_bits       24" in result.output
    assert "\nblock_size          8\narithmetic          aligned\nfraction_bits" in result.output
    assert "overflow" not in result.output  # what an aligned sum does not have
    assert tcsim.unit("a100", "float16").explain() in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "a10", "float16"), "unknown unit 'a10' (nearest: 'a100')"),
        (("show", "a100", "floatt16"), "nearest: 'float16'"),
        (("list", "v10"), "unknown unit 'v10' (nearest: 'v100')"),
        (("study", "rounding"), "unknown study 'rounding' (nearest: 'rounding-growth')"),
        (("study", "rounding-growth", "--k-max", "100"), "k_max must be an integer of at least 512; got 100"),
        (("study", "rounding-growth", "--units", "v100,b20"), "unknown unit 'b20' (nearest: 'b200')"),
        (("study", "rounding-growth", "--units", "mi250"), "aligns none; units that do: v100"),
        (("study", "rounding-growth", "--k-max", "many"), "k_max"),
        (("study", "fabsum", "--k-max", "3000"), "k_max must be a power of two; got 3000"),
        (("study", "terms", "--size", "0"), "size must be an integer of at least 1; got 0"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_doctor_says_what_is_here() -> None:
    result = invoke("doctor")
    assert result.exit_code == 0
    assert f"tcsim {tcsim.__version__}" in result.output
    assert "compiled kernels" in result.output


def test_study_list_names_what_is_reproduced() -> None:
    result = invoke("study", "list")
    assert result.exit_code == 0
    assert "Fasi, Higham, Lopez, Mary, Mikaitis 2022" in result.output
