"""Notebooks of frameworks that are optional run where those are installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["7_one_model.ipynb"]
