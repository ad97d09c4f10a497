"""A figure says how it is to be read; that each has its caption `test_verdicts` asks, where the studies run."""

from __future__ import annotations

import re

import pytest

import tcsim


@pytest.mark.parametrize("name", tcsim.study.studies())
def test_captions_are_whole_sentences(name: str) -> None:
    study = tcsim.study.study(name)
    assert study.captions, f"{name} draws figures that have no caption"
    for stem, text in study.captions.items():
        assert re.fullmatch(r"(fp16|float32|cuBLAS|[A-Z]).*[.]", text), (stem, text)
        assert not re.search(r"  |\?\?|TODO", text), (stem, text)
        assert len(text) > 30, (stem, text)
