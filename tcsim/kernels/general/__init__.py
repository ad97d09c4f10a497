"""The general kernel: every unit and what-if in 64-bit integers, limbs where those do not hold."""
