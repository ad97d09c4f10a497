"""The oracle: which unit a black box is, and which unit and schedule explain a result."""
