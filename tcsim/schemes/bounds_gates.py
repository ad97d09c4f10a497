"""What the bounds and the drift understand of a unit, field by field, and what a rounding loses: unknown ones are refused."""

from __future__ import annotations

from tcsim.fp.modes import mode
from tcsim.gates import ANY_ORDER, LABELS, Gate, Test, any_formats, one_of, roundings, up_to

# The largest error of a rounding in last places of the result, by where it goes.
LOST_AT_MOST = {"nearest": 0.5, "zero": 1.0, "+infinity": 1.0, "-infinity": 1.0, "odd": 1.0, "random": 1.0}
# A positive number's mean loss in last places, by (toward, rule): all numbers between two neighbours alike, none at a tie.
MEAN_LOSS = {
    ("zero", ""): 0.5,
    ("-infinity", ""): 0.5,
    ("+infinity", ""): -0.5,
    ("nearest", "even"): 0.0,
    ("nearest", "away"): 0.0,
    ("odd", ""): 0.0,
    ("random", "floor"): 0.0,
}


def lost_at_most(rounding: str) -> float:
    """The largest error of a rounding in last places. ValueError for one of which nothing is proved."""
    toward = mode(rounding).toward
    if toward not in LOST_AT_MOST:
        raise ValueError(f"no bound knows how far the rounding {rounding!r}, toward {toward!r}, can go")
    return LOST_AT_MOST[toward]


def mean_loss(rounding: str) -> float:
    """A rounding's mean loss on positive numbers in last places. ValueError for one whose mean is not known."""
    found = mode(rounding)
    if (found.toward, found.rule) not in MEAN_LOSS:
        raise ValueError(
            f"no closed form knows the mean of the rounding {rounding!r}, {found.toward!r} by the rule {found.rule!r}"
        )
    return MEAN_LOSS[found.toward, found.rule]


_ALL_BUT_ROUNDINGS: dict[str, Test] = {
    **LABELS,
    **any_formats("a", "b", "out", "scale", "operand_format", "sum_format"),
    **one_of("arithmetic", "aligned", "two-stage", "rounded", "fused", "paired", "integer"),
    **one_of("c_enters", "aligned", "after"),
    **one_of("subnormals", "keep", "flush"),
    **one_of("zero_sign", "positive", "ieee"),
    **one_of("nan_from", "code", "operand"),
    **one_of("overflow", "wrap", "saturate"),
    **one_of("parity_split", False, True),
    **up_to("block_size", 1 << 62),
    **up_to("group_size", 1 << 62),
    **up_to("scale_block", 1 << 62),
    **up_to("chain", 1 << 62),
    **up_to("chains", 1 << 62),
    **up_to("lanes", 1 << 62),
    **one_of("term_cut", "floor", "pairs", "complement"),
    **up_to("factor_nan", 1 << 64),
    **up_to("fraction_bits", 1 << 20),
    **up_to("late_fraction_bits", 1 << 20),
    **up_to("min_exponent", 1 << 20),
    **up_to("out_precision", 1 << 20),
    **ANY_ORDER,
    **up_to("nan_code", 1 << 64),
}
BOUNDED = Gate(
    "the bound",
    {
        **_ALL_BUT_ROUNDINGS,
        **roundings("align_rounding", "exact", form=lost_at_most),
        **roundings("rounding", form=lost_at_most),
        **roundings("product_rounding", form=lost_at_most),
    },
)
DRIFTS = Gate(
    "the drift's closed form",
    {
        **_ALL_BUT_ROUNDINGS,
        **roundings("align_rounding", "exact", form=mean_loss),
        **roundings("rounding", form=mean_loss),
        **roundings("product_rounding", form=mean_loss),
    },
)
