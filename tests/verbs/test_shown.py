"""What a prompt and a notebook show: short, and with what one looks for."""

from __future__ import annotations

import numpy as np

import tcsim

A = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)


def test_short_forms() -> None:
    units = tcsim.units("v100")
    assert repr(units).splitlines() == ["2 units", *(f"  {u.label}, evidence V" for u in units)]
    assert units == [tcsim.unit("v100:fp16"), tcsim.unit("v100:fp16:fp16")]
    block = tcsim.trace([1.0], [2.0], unit="v100:fp16")
    assert repr(block) == "<v100 float16 -> float32 (mma): 2 terms, result 2.0 (0x40000000)>"
    result = tcsim.gemm(A, A.T, "ootomo", unit="v100")
    assert repr(result) == "<float32 product of shape (4, 4) by ootomo: 3 products on v100 float16 -> float32 (mma)>"
    advice = tcsim.advise(A, A.T, 1e-6, unit="v100")
    assert repr(advice).startswith("<advice for 1e-06 on v100: best: ")
    assert all(len(repr(x)) < 200 for x in (block, result, advice, tcsim.compare("v100", "a100", A, A.T)))


def test_notebook_forms() -> None:
    unit = tcsim.unit("h200:e4m3")
    for thing, wanted in (
        (unit, ("fraction_bits</td><td>13", "out_precision</td><td>14", "H: measured on an NVIDIA H200")),
        (tcsim.units("mi100"), ("mi100 float16 -&gt; float32 (mfma)", "<td>exact</td>")),
        (tcsim.gemm(A, A.T, "plain", unit="v100"), ("products</td><td>1",)),
        (tcsim.advise(A, A.T, 1e-6, unit="v100"), ("<th>bound</th>", "ootomo")),
        (tcsim.trace([1.0], [2.0], unit="v100:fp16"), ("a[0]*b[0]",)),
    ):
        html = thing._repr_html_()
        assert html.count("<table>") == html.count("</table>") > 0
        for text in wanted:
            assert text in html


def test_what_if_draws_what_the_unit_gives() -> None:
    from tcsim.verbs.what_if import changed, error_curve

    figure = tcsim.what_if("v100:fp16", k=256)
    assert [axis.get_xlabel() for axis in figure.axes] == ["value of the bit", "inner dimension k"]
    ks, errors = error_curve(tcsim.unit("v100:fp16"), 4096, 0)
    assert ks[-1] == 4096
    assert 3 < errors[-1] / errors[-3] < 5.5  # truncation: the error grows like k, by four from 1024 on
    _, exact = error_curve(tcsim.unit("v100:fp16,align_rounding=exact,rounding=rne"), 4096, 0)
    assert exact[-1] < errors[-1] / 10
    values = {"block_size": 4, "fraction_bits": 30, "align_rounding": "exact", "rounding": "rne"}
    assert changed(tcsim.unit("v100:fp16"), values) == tcsim.unit(
        "v100:fp16,align_rounding=exact,rounding=rne,fraction_bits=None"
    )
