"""A validation report as text, JSON and one HTML page."""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape

from tcsim_gpu.validate import Count, Report


def report_text(report: Report) -> str:
    """A line an instruction, then the counterexamples, then the sum."""
    lines = [_machine(report), ""]
    for name, counts in _by_instruction(report).items():
        outputs, wrong = sum(c.outputs for c in counts), sum(c.mismatches for c in counts)
        sample, bad = sum(c.reference_outputs for c in counts), sum(c.reference_mismatches for c in counts)
        verdict = "ok" if wrong + bad == 0 else f"{wrong} DIFFER, {bad} of {sample} from the reference"
        lines.append(f"{name:44} {outputs:>14,} outputs  {verdict}")
    for c in report.counts:
        if c.counterexample is not None:
            lines += ["", f"first difference of {c.instruction} ({c.unit}), {c.distribution}:"]
            lines += [f"  {k}: {v}" for k, v in c.counterexample.items() if k != "trace"]
            lines += c.counterexample.get("trace", "").splitlines()
    if len(report.devices) > 1:
        shares = [sum(c.outputs for c in report.counts if c.device == i) for i in range(len(report.devices))]
        lines += [
            "",
            *(f"GPU {i}, {name}: {n:,} outputs" for i, (name, n) in enumerate(zip(report.devices, shares, strict=True))),
        ]
    lines += ["", f"{report.outputs:,} outputs compared in {report.seconds:.0f} s, {report.mismatches:,} differ"]
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Everything, for programs."""
    return json.dumps({**asdict(report), "outputs": report.outputs, "mismatches": report.mismatches}, indent=1)


def html(report: Report) -> str:
    """One self-contained page: a row an instruction, a column a distribution."""
    distributions = list(dict.fromkeys(c.distribution for c in report.counts))
    head = "".join(f"<th>{escape(h)}</th>" for h in ("instruction", "unit", *distributions, "outputs"))
    rows = []
    for name, counts in _by_instruction(report).items():
        by = {c.distribution: c for c in counts}
        cells = "".join(_cell(by.get(d)) for d in distributions)
        total = sum(c.outputs for c in counts)
        rows.append(f"<tr><td>{escape(name)}</td><td>{escape(counts[0].unit)}</td>{cells}<td>{total:,}</td></tr>")
    examples = "".join(
        f"<h3>{escape(c.instruction)}, {escape(c.distribution)}</h3><pre>{escape(json.dumps(c.counterexample, indent=1))}</pre>"
        for c in report.counts
        if c.counterexample is not None
    )
    style = (
        "body{font:14px sans-serif}td,th{padding:2px 8px;text-align:right}td:first-child{text-align:left}.bad{background:#fbb}"
    )
    return (
        f"<!doctype html><meta charset='utf-8'><title>tcsim validate</title><style>{style}</style>"
        f"<h1>{report.mismatches:,} of {report.outputs:,} outputs differ</h1><p>{escape(_machine(report))}</p>"
        f"<table><tr>{head}</tr>{''.join(rows)}</table>{examples}"
    )


def _cell(count: Count | None) -> str:
    if count is None:
        return "<td></td>"
    wrong = count.mismatches + count.reference_mismatches
    return f"<td class='bad'>{wrong:,}</td>" if wrong else "<td>0</td>"


def _machine(report: Report) -> str:
    m = report.machine
    if "cpu" in m:
        return f"{m['cpu']} ({m['family']}), microcode {m['microcode']}, {m['kernel']}, {report.date}, seed {report.seed}"
    return (
        f"{m['gpu']} x {len(report.devices)}, driver {m['driver']}, CUDA {m['cuda_driver']} (runtime {m['cuda_runtime']}), "
        f"CuPy {m['cupy']}, {report.date}, seed {report.seed}"
    )


def _by_instruction(report: Report) -> dict[str, list[Count]]:
    found: dict[str, list[Count]] = {}
    for c in report.counts:
        found.setdefault(c.instruction, []).append(c)
    return found
