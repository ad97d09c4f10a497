"""The names that a unit's fields may hold, and what each kind of evidence means."""

from tcsim.fp.modes import UNIT_MODES

ARITHMETICS = ("aligned", "two-stage", "rounded", "fused", "paired", "integer")
ROUNDINGS = UNIT_MODES
ALIGN_ROUNDINGS = (*ROUNDINGS, "exact")
TERM_CUTS = ("floor", "pairs", "complement")
SUBNORMALS = ("keep", "flush")
ZERO_SIGNS = ("positive", "ieee")
C_ENTERS = ("aligned", "after")
NAN_FROM = ("code", "operand")
OVERFLOWS = ("wrap", "saturate")
EVIDENCE = {
    "V": "explains every row of the public hardware vectors bit for bit",
    "H": "measured on an NVIDIA H200, no mismatch",
    "C": "measured here on CPUs that have the instruction, no mismatch",
    "S": "stated by a source that validated it on hardware",
    "?": "a what-if: no hardware is claimed",
}
