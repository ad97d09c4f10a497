"""The words for a rounding, in the two places where a sentence needs them."""

ROUND = {
    "rz": "by truncation toward zero",
    "rne": "to nearest, ties to even",
    "rna": "to nearest, ties away from zero",
    "ru": "up, toward +infinity",
    "rd": "down, toward -infinity",
    "ro": "to odd",
    "sr": "stochastically, up in magnitude with the probability of the discarded fraction",
}
CUT = {mode: f"rounded {how}," for mode, how in ROUND.items()}
CUT |= {"rz": "truncated toward zero", "rd": "rounded down (toward -infinity)"}
CUT["sr"] = (
    "rounded stochastically (up in magnitude with the probability of the discarded fraction, by a random word of its own)"
)
