"""The definition in Python integers: values, one block, one output; and the trace that opens a block."""

from tcsim.reference.dot import run as run
