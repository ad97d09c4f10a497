"""The seed of everything that a run draws afresh: a test that fails shows it, and `pytest --soak-seed N` draws the same again.

No other file of the tests draws a seed (`tests/test_house.py` sees to it): one that is not said cannot be tried again.
"""

import secrets

SEED = secrets.randbits(32)  # `conftest.py` puts the seed that was asked for in its place, before any test is collected


def seeds(fixed: int) -> dict[str, int]:
    """For `pytest.mark.parametrize("seed", ...)`: the same draws each time, and new ones."""
    return {"fixed": fixed, "fresh": SEED}
