"""Philox4x32-10: the published known answers, and the kernel form against the definition."""

import numpy as np
import pytest

from tcsim.codegen.jit import kernel
from tcsim.codegen.memory import at
from tcsim.fp import philox
from tcsim.fp.compiled.philox import random_word, words
from tcsim.kernels.native.double_words import draw_lane_words, draw_words_of_groups

# Known-answer vectors of Random123 1.14 (kat_vectors, philox4x32 10 rounds): counter, key, output.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@kernel
def _fill_words(out, seed, element, group, operation):
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = words(seed[i], element[i], group[i], operation[i])


@kernel
def _fill_word(out, seed, element, step, operation):
    for i in range(out.shape[0]):
        out[i] = random_word(seed[i], element[i], step[i], operation[i])


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    assert philox.philox(counter, key) == expected


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_kernel_known_answers(counter, key, expected):
    out = np.zeros((1, 4), np.uint64)
    c0, c1, c2, c3 = counter
    one = [np.array([v], np.uint64) for v in (key[0] | key[1] << 32, c0 | c1 << 32, c2, c3)]
    _fill_words(out, *one)
    assert tuple(int(w) for w in out[0]) == expected


def test_kernel_equals_definition():
    rng = np.random.default_rng(7)
    n = 500
    seed, element = (rng.integers(0, 2**64, n, dtype=np.uint64) for _ in range(2))
    step, operation = (rng.integers(0, 2**32, n, dtype=np.uint64) for _ in range(2))
    element[:8] = np.arange(8)
    step[:16] = np.arange(16)
    out = np.zeros(n, np.uint64)
    _fill_word(out, seed, element, step, operation)
    expected = [philox.word(*(int(v) for v in row)) for row in zip(seed, element, step, operation, strict=True)]
    assert out.tolist() == expected


def test_words_are_the_four_steps_of_a_group():
    assert [philox.word(5, 9, 8 + i, 2) for i in range(4)] == list(philox.philox((9, 0, 2, 2), (5, 0)))


@kernel
def _fill_lines(found, seed, element, group, first, last, width, pitch, mark):
    draw_lane_words(seed, element, group, first, last, width, pitch, mark, at(found, 0))


@kernel
def _fill_groups(found, seed, element, group, groups, width, pitch, mark):
    draw_words_of_groups(seed, element, group, groups, width, pitch, mark, at(found, 0))


@pytest.mark.parametrize("seed", range(8))
def test_lines_of_operations(seed):
    """Sixteen outputs and more abreast, some of them on either side of 2^32: every word of every operation, and no other place."""
    rng = np.random.default_rng(seed)
    key, group, width = int(rng.integers(0, 2**64, dtype=np.uint64)), int(rng.integers(0, 2**30)), 16 * int(rng.integers(1, 4))
    first, pitch = int(rng.integers(0, 40)), width + 16 * int(rng.integers(0, 3))
    element, last = (2**32 - int(rng.integers(0, width + 1)) if seed % 2 else int(rng.integers(0, 2**40))), first + seed % 5 + 1
    found, mark = np.full((last - first, 4, pitch), -1), (seed % 3) << (32 + seed)
    _fill_lines(found.reshape(-1), np.uint64(key), element, group, first, last, width, pitch, mark)
    counters = [
        [[philox.word(key, element + j, 4 * group + word, i) for j in range(width)] for word in range(4)]
        for i in range(first, last)
    ]
    assert np.array_equal(found[:, :, :width], np.array(counters) | mark)
    several = np.full((3, 4, pitch), -1)
    _fill_groups(several.reshape(-1), np.uint64(key), element, group, 3, width, pitch, mark)
    for i, lines in enumerate(several):
        alone = np.full((1, 4, pitch), -1)
        _fill_lines(alone.reshape(-1), np.uint64(key), element, group + i, 0, 1, width, pitch, mark)
        assert np.array_equal(lines, alone[0])
    assert np.all(found[:, :, width:] == -1)
