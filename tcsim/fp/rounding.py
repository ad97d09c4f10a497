"""Rounding to the values of a format (`round_to`), its modes (`ROUNDINGS`), and what each makes of one number (`explain`)."""

from tcsim.fp.explain import Explanation, explain
from tcsim.fp.round_to import ROUNDINGS, round_to

__all__ = ["ROUNDINGS", "Explanation", "explain", "round_to"]


def __dir__() -> list[str]:
    return sorted(__all__)
