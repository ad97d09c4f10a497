"""Units that the processor's own arithmetic computes, and what is left of theirs to repair."""
