"""Without a GPU or CuPy the module imports, and every verb says what is missing and how to get it."""

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from tcsim_gpu import cli, device, unit_of_instruction
from tcsim_gpu.table import INSTRUCTIONS, instructions_of

import tcsim
from tcsim.hardware import UNITS

ABSENT = pytest.mark.skipif(device.gpu_available(), reason="a GPU is here")


def test_import_loads_no_cupy() -> None:
    code = "import sys, tcsim_gpu, tcsim_gpu.emulator, tcsim_gpu.cli; assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@ABSENT
@pytest.mark.parametrize("backend", ["cuda", "hardware"])
def test_backends_say_what_is_missing(backend: str) -> None:
    a = np.ones((2, 16), np.float16)
    with pytest.raises(device.NoGPU, match=r"CuPy|GPU"):
        tcsim.matmul(a, a.T, unit=tcsim.unit("h200", "float16"), backend=backend)


@ABSENT
@pytest.mark.parametrize("verb", sorted(cli.COMMANDS))
def test_verbs_say_what_is_missing(verb: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    # without a GPU named, validate turns to the processor where that has matrix instructions
    arguments = {"capture": [str(tmp_path / "x.npz")], "plan": []}.get(verb, ["--gpu", "h200"])
    result = CliRunner().invoke(cli.COMMANDS[verb], arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, device.NoGPU)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan b200 nvfp5", "nearest: 'nvfp4'"),
        ("plan b2000", "nearest: 'b200'"),
        ("plan --on h2000", "nearest: 'h200'"),
        ("plan b200 nvfp4 --data nrmal", "nearest: 'normal'"),
        ("validate --gpu h2000", "nearest: 'h200'"),
        ("validate --gpu h200 wgmmma", "unknown instruction 'wgmmma'"),
        ("validate --gpu h200 --distribution cancl", "nearest: 'cancel'"),
        ("validate --gpu h200 --gpus many", "'many': a number from 1 on, or 'all'"),
        ("validate --gpu h200 --gpus 0", "'0': a number from 1 on, or 'all'"),
        ("capture x.npz wgmmma", "unknown instruction 'wgmmma'"),
        ("capture x.npz --distribution cancl", "nearest: 'cancel'"),
    ],
)
def test_wrong_names_are_said_before_what_is_missing(words: str, said: str) -> None:
    verb, *arguments = words.split()
    result = CliRunner().invoke(cli.COMMANDS[verb], arguments)
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"


def test_a_plan_of_one_gpus_units() -> None:
    result = CliRunner().invoke(cli.COMMANDS["plan"], ["V100", "--on", "H200"])
    assert [line.split(maxsplit=1) for line in result.output.splitlines()] == [
        ["ballast", "v100 float16 -> float32 (mma)"],
        ["emulator", "v100 float16 -> float16 (mma)"],
    ]


def test_doctor_speaks_of_gpu_and_compiler() -> None:
    lines = "\n".join(cli.gpu_lines())
    assert "CuPy" in lines
    assert "CUDA compiler" in lines


def test_instruction_names_are_unique() -> None:
    names = [row.name for row in INSTRUCTIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("gpu", unit_of_instruction.gpus())
def test_every_unit_has_an_instruction(gpu: str) -> None:
    missing = {u.label for u in UNITS if u.gpu == gpu and not instructions_of(u)}
    assert missing <= {"rtx-blackwell mxfp4_block16 -> float32 (mma)"}  # PTX pairs blocks of 16 with ue4m3 alone
    for row, unit in unit_of_instruction.instruction_units(gpu):
        assert row.out == unit.out
        assert unit.arithmetic == "integer" or unit.block_size <= row.k
