"""The definition in Python integers: values, one block, one output; and the trace that opens a block."""

from tcsim.reference.dot import multiply_reference as multiply_reference
