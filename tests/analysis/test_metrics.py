"""Error measures on values small enough to check by hand."""

import numpy as np
import pytest

from tcsim.analysis import metrics

C = np.array([[1.0, 2.0], [0.0, -4.0]])
HAT = np.array([[1.5, 2.0], [0.25, -3.0]])


def test_componentwise():
    size = np.array([[2.0, 2.0], [1.0, 8.0]])
    assert metrics.componentwise(HAT, C, size).tolist() == [[0.25, 0.0], [0.25, 0.125]]
    assert metrics.max_componentwise(HAT, C, size) == 0.25
    assert metrics.max_componentwise(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1))) == 0.0


def test_the_reference_pair_measures_errors_below_its_last_bit():
    pair = (np.array([1.0]), np.array([2.0**-60]))
    assert metrics.relative(np.array([1.0]), pair)[0] == 2.0**-60
    assert metrics.difference(np.array([1.0 + 2.0**-52]), pair)[0] == 2.0**-52 - 2.0**-60


def test_normwise():
    a, b = np.array([[1.0, -2.0], [0.0, 1.0]]), np.array([[1.0, 3.0], [0.0, -2.0]])
    assert metrics.normwise(HAT, C, a, b) == 1.25 / (3.0 * 4.0)  # rows of |HAT - C| sum to 0.5 and 1.25
    assert metrics.normwise(np.zeros((2, 2)), np.zeros((2, 2)), a * 0, b) == 0.0


def test_frobenius():
    assert metrics.frobenius(HAT, C) == pytest.approx(np.sqrt((0.25 + 0.0625 + 1) / 21), rel=1e-15)
    assert metrics.frobenius(HAT * 2.0**900, C * 2.0**900) == pytest.approx(metrics.frobenius(HAT, C), rel=1e-15)
    assert metrics.frobenius(np.zeros(2), np.zeros(2)) == 0.0


def test_relative_errors():
    assert metrics.relative(HAT, C).tolist() == [[0.5, 0.0], [np.inf, 0.25]]
    assert metrics.max_relative(HAT[1:, 1:], C[1:, 1:]) == 0.25
    assert metrics.mean_relative(HAT[0], C[0]) == 0.25
    assert metrics.capped_relative(HAT, C) == (0.5 + 0.0 + 1.0 + 0.25) / 4
    assert metrics.capped_relative(np.array([np.nan, 1e9]), np.array([1.0, 1.0])) == 1.0


def test_special_values_that_agree_are_no_error():
    same = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert metrics.difference(same, same).tolist() == [0.0] * 4
    assert np.isnan(metrics.difference(np.array([np.nan]), np.array([1.0]))[0])


def test_correct_digits():
    assert metrics.correct_digits(np.array([1.0 + 2.0**-20]), np.array([1.0]), base=2.0)[0] == pytest.approx(20.0)
    assert metrics.correct_digits(np.array([1.0, 5.0]), np.array([1.0, 1.0])).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize(("dtype", "unit"), [(np.float64, 2.0**-52), (np.float32, 2.0**-23), (np.float16, 2.0**-10)])
def test_ulps(dtype, unit):
    fmt = np.dtype(dtype).name
    one = np.ones(1, dtype)
    assert metrics.ulp_distance(one + dtype(3 * unit), one, fmt)[0] == 3
    assert metrics.ulp_distance(one - dtype(unit / 2), one, fmt)[0] == -1
    assert metrics.ulp_distance(np.array([-0.0], dtype), np.zeros(1, dtype), fmt)[0] == 0
    small = np.finfo(dtype).smallest_subnormal
    assert metrics.ulp_distance(np.array([-small]), np.array([small]), fmt)[0] == -2


def test_ulps_of_bfloat16_and_nan():
    assert metrics.ulp_distance(np.float32([1.0 + 2.0**-7]), np.float32([1.0]), "bfloat16")[0] == 1
    assert metrics.ulp_distance(np.array([np.nan]), np.array([np.nan]), "float64")[0] == 0
    assert metrics.ulp_distance(np.array([np.nan]), np.array([1.0]), "float64")[0] == np.iinfo(np.int64).max
    with pytest.raises(ValueError, match="int8"):
        metrics.ulp_distance(np.zeros(1), np.zeros(1), "int8")


def test_ulp_histogram_counts_everything():
    r = np.ones(5, np.float32)
    c = r + np.float32(2.0**-23) * np.arange(5, dtype=np.float32)
    assert metrics.ulp_histogram(c, r, limit=2) == {-2: 0, -1: 0, 0: 1, 1: 1, 2: 3}
