"""An audit as text and as one HTML page."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tcsim.torch.auditing import AuditedProduct, ModelAudit

_HEAD = (
    "module",
    "pass",
    "operator",
    "batch x m x n x k",
    "layout",
    "dtype",
    "schedule",
    "known",
    "outputs",
    "differing",
    "first",
)


def _cells(row: AuditedProduct) -> tuple[str, ...]:
    batch, m, n, k = row.shape
    first = "" if row.counterexample is None else "{} {} {}".format(*row.counterexample)
    return (
        row.module or "(model)", "backward" if row.backward else "forward", row.op, f"{batch} x {m} x {n} x {k}", row.layout, row.dtype,
        row.schedule + (", " + row.unit.split(", ")[1] if ", " in row.unit else ""), "predicted" if row.predicted else "fitted",
        f"{row.outputs:,}", f"{row.differing:,}", first,
    )  # fmt: skip


def _summary(report: ModelAudit) -> str:
    exact = sum(row.differing == 0 for row in report.rows)
    where = ", ".join(f"{key} {value}" for key, value in report.about.items())
    note = ""
    if report.about.get("device") == "cpu":
        note = " PyTorch ran on the CPU, whose own order and rounding of sums no GPU has: differences are expected."
    names = ", ".join(f"{name} ({count})" for name, count in report.unseen.items())
    unseen = f" Contractions that are not emulated ran too: {names}." if names else ""
    return (
        f"{exact} of {len(report.rows)} products equal {report.target} in every bit; {report.differing:,} of {report.outputs:,} outputs "
        f"differ.{note}{unseen} ({where})"
    )


def audit_text(report: ModelAudit) -> str:
    """A table of products, one a line, under a line that sums it up."""
    rows = [_HEAD, *(_cells(row) for row in report.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([_summary(report), "", *lines])


def audit_html(report: ModelAudit) -> str:
    """The same as a page, with a picture of the share of outputs that differ, product by product."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in (*_HEAD, "kernel"))
    body = "".join(
        "<tr class={}>{}</tr>".format(
            "same" if row.differing == 0 else "other",
            "".join(f"<td>{escape(cell)}</td>" for cell in (*_cells(row), row.kernel)),
        )
        for row in report.rows
    )
    style = "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 8px;text-align:left}.other{background:#fbe3d6}"
    return (
        f"<!doctype html><meta charset=utf-8><title>Audit: {escape(report.target)}</title><style>{style}</style>"
        f"<h1>Products of a model and {escape(report.target)}</h1><p>{escape(_summary(report))}</p>"
        f"<img alt='share of differing outputs by product' src='data:image/png;base64,{_picture(report)}'>"
        f"<table><tr>{head}</tr>{body}</table>"
    )


def _picture(report: ModelAudit) -> str:
    from tcsim.analysis.plot import COLOURS, style, subplots

    with style():
        figure, axes = subplots(width=9, height=2.5)
        draw_products(axes[0, 0], report, COLOURS)
        file = BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
    return b64encode(file.getvalue()).decode()


def draw_products(ax: Any, report: ModelAudit, colours: Any) -> None:
    """Share of differing outputs of each product, forward and backward ones apart."""
    for backward, label in ((False, "forward"), (True, "backward")):
        places = [i for i, row in enumerate(report.rows) if row.backward == backward]
        shares = [report.rows[i].differing / max(report.rows[i].outputs, 1) for i in places]
        if places:
            ax.plot(places, shares, "o", color=colours[backward], label=label)
    ax.set(xlabel="product, in the order of the run", ylabel="share of outputs that differ")
    ax.legend()
