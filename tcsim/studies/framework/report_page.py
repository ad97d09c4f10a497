"""The look of a report: one column that fits a phone, figures as wide as the page that open on a click, and a printed form."""

STYLE = """
:root { --good: #00643c; --bad: #a33000; --dim: #5a5a5a; --line: #d8d8d8; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 0 auto; padding: 1rem; color: #1d1d1d; background: #fff; }
h1 { margin: .5rem 0; } h2 { border-bottom: 2px solid var(--line); padding-bottom: .2rem; margin-top: 3rem; }
.about { color: var(--dim); } nav ol { columns: 22rem; padding-left: 1.4rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92em; }
td, th { padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: #fff; }
td.count { white-space: nowrap; } small { color: var(--dim); } sup { white-space: nowrap; line-height: 0; }
.holds { color: var(--good); font-weight: 600; } .fails { color: var(--bad); font-weight: 600; } .untold { color: var(--dim); font-weight: 600; }
.banner { border-left: .4rem solid #e69f00; background: #fdf6e3; padding: .5rem .8rem; margin: .6rem 0; }
.banner.bad { border-color: var(--bad); background: #fbeae4; }
figure { margin: 1.2rem 0; } figure div { overflow: auto; border: 1px solid var(--line); cursor: zoom-in; }
figure img { width: 100%; height: auto; max-height: 85vh; object-fit: contain; display: block; } figure.zoom div { cursor: zoom-out; max-height: 92vh; } figure.zoom img { width: 220%; max-width: none; max-height: none; }
figcaption { color: var(--dim); font-size: .92em; padding: .3rem 0; } figcaption b { color: #1d1d1d; }
pre { overflow-x: auto; background: #f6f6f6; padding: .7rem; font-size: 12.5px; line-height: 1.35; }
@media (max-width: 40rem) { body { font-size: 15px; padding: .6rem; } nav ol { columns: 1; } td, th { padding: .25rem .35rem; }
 :is(.claims, .failed), :is(.claims, .failed) :is(tbody, tr, td) { display: block; width: 100%; } .claims tr:first-child { display: none; }
 :is(.claims, .failed) td { border: 0; padding: .1rem .35rem; } :is(.claims, .failed) tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
 .claims td:last-child::before { content: "Origin: "; color: var(--dim); } figure.zoom img { width: 320%; } }
@media print { .skip { display: none; } body { max-width: none; font-size: 10.5pt; } figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
 section + section { break-before: page; } th { position: static; } pre { white-space: pre-wrap; font-size: 5.2pt; }
 figure div { border: 0; overflow: visible; } details { display: block; } }
"""

SCRIPT = """
for (const box of document.querySelectorAll("figure div")) {
  box.addEventListener("click", () => box.parentNode.classList.toggle("zoom"));
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => { d.open = true; }));
"""


def page(title: str, body: str) -> str:
    """A page that needs nothing else."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{body}<script>{SCRIPT}</script></body></html>"
    )
