"""What the documentation draws from the package: the tables of units and formats, the verbs' help, the gallery, the notebooks."""

from __future__ import annotations

import ast
import base64
import json
import re
import shutil
from pathlib import Path
from types import ModuleType

import click

import tcsim
from tcsim.cli import main
from tcsim.hardware.choices import EVIDENCE
from tcsim.hardware.gpus import GPUS
from tcsim.verbs.records import record_lines, shown_gpus, shown_inputs

GROUPS = {
    "Multiply and look": ("unit", "units", "matmul", "trace", "compare", "check", "vectors", "what_if"),
    "Formats and rounding": ("formats", "encode", "decode", "round_to", "quantize", "dequantize"),
    "Schedules": ("Sequential", "SplitK", "Blocked", "Tiled", "Lanes", "Hybrid"),
    "Which unit, which order, why": ("probe", "predict", "explain_diff", "audit"),
    "Schemes": ("schemes", "gemm", "advise"),
    "Records": ("Unit", "Format"),
}
FRAMEWORKS = ("torch", "jax")  # read, not imported: the site is built without them
MODULES = ("bounds", "cpfloat", "exact", "files", "inputs", "metrics", "multiword", "ozaki", "rounding", "sparse", "study")


def generate(docs: Path) -> None:
    """Write the generated pages into docs/_generated, and the notebooks beside them."""
    out = docs / "_generated"
    out.mkdir(exist_ok=True)
    pages = {
        "units": units_page(),
        "formats": formats_page(),
        "cli": cli_page(),
        "gallery": gallery_page(docs),
        "api": api_page(),
    }
    for name, text in pages.items():
        write(out / f"{name}.md", text)
    (docs / "notebooks").mkdir(exist_ok=True)
    for path in sorted((docs.parent / "notebooks").iterdir()):
        if path.suffix in (".ipynb", ".md"):
            target = docs / "notebooks" / ("index.md" if path.name == "README.md" else path.name)
            if not target.is_file() or target.read_bytes() != path.read_bytes():
                shutil.copy(path, target)
    index = docs / "notebooks" / "index.md"
    names = "\n".join(path.stem for path in sorted((docs / "notebooks").glob("*.ipynb")))
    write(index, (docs.parent / "notebooks" / "README.md").read_text() + f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n")


def write(path: Path, text: str) -> None:
    """Write a page only where it changes, so that a second build is short."""
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def row(cells: list[object]) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|").replace("\n", " ") for c in cells) + " |"


def units_page() -> str:
    """The unit table: a line an arithmetic, with evidence; then the sources, and every name that a GPU answers to."""
    head = ["GPU (evidence)", "instruction", "inputs", "output", "sum", "block", "fraction bits", "terms", "results"]
    text = [
        "# Units",
        "",
        "Every unit that is known, those of one arithmetic in one line. `tcsim list` prints the same, `tcsim show` one of them.",
        "",
    ]
    text += [f"- **{letter}**: {what}" for letter, what in EVIDENCE.items()]
    text += ["", row(head), row(["---"] * len(head))]
    for x in record_lines(tcsim.units()):
        text.append(row([shown_gpus(x["gpus"]), x["instruction"], shown_inputs(x["inputs"]), x["out"], x["arithmetic"], x["block_size"],
                         x["fraction_bits"] or "exact", x["align_rounding"], x["rounding"]]))  # fmt: skip
    text += ["", "## Sources", "", row(["source", "units"]), row(["---", "---"])]
    sources: dict[str, list[str]] = {}
    for u in tcsim.units():
        sources.setdefault(u.source, []).append(u.gpu)
    text += [row([source, ", ".join(dict.fromkeys(gpus))]) for source, gpus in sources.items()]
    text += [
        "",
        "## Names of GPUs",
        "",
        row(["unit", "also", "CUDA device names (patterns)", "compute capability"]),
        row(["---"] * 4),
    ]
    for gpu in GPUS:
        capability = "" if gpu.capability is None else f"{gpu.capability // 10}.{gpu.capability % 10}"
        text.append(row([gpu.name, ", ".join(gpu.aliases), ", ".join(f"`{d}`" for d in gpu.devices), capability]))
    return "\n".join(text) + "\n"


def formats_page() -> str:
    head = ["format", "aliases", "bits", "exponent", "fraction", "largest", "smallest normal", "infinities", "NaN", "source"]
    text = [
        "# Formats",
        "",
        "A name, an alias, a type of numpy, ml_dtypes, PyTorch or JAX, or `e5m7` for a format of one's own.",
        "",
    ]
    text += [row(head), row(["---"] * len(head))]
    for f in tcsim.formats().values():
        numbers = ("-", "-") if f.integer else (f"{f.max_finite:g}", f"2^{f.emin}")
        text.append(row([f.name, ", ".join(f.aliases), f.width, f.exponent_bits, f.mantissa_bits, *numbers,
                         "yes" if f.infinities and not f.integer else "no", "-" if f.integer else f.nan, f.source]))  # fmt: skip
    return "\n".join(text) + "\n"


def cli_page() -> str:
    text = ["# Command line", "", "```text", help_of(main, "tcsim"), "```", ""]
    for name in sorted(main.commands):
        command = main.commands[name]
        if name in ("validate", "capture"):
            text += [f"## tcsim {name}", "", f"{command.help} Needs an NVIDIA GPU and CuPy; `tcsim {name} --help` there.", ""]
            continue
        text += [f"## tcsim {name}", "", "```text", help_of(command, f"tcsim {name}"), "```", ""]
    return "\n".join(text)


def help_of(command: click.Command, name: str) -> str:
    with click.Context(command, info_name=name, max_content_width=110, terminal_width=110) as context:
        return command.get_help(context)


# Figures of the committed notebooks, drawn at full size, by the line that draws them.
FIGURES = {
    "rounding-growth": 'growth.figure("figure-4.3")',
    "what-if": 'study.figure("what-if-units")',
    "architectures": 'study.figure("architectures")',
    "fp8-accumulators": 'fp8.figure("fp8-promotion")',
    "fabsum": 'fabsum.figure("figure-4.4")',
    "methods": 'methods.figure("precision-by-method")',
    "ozaki-accuracy": 'ozaki.figure("figures-3-8")',
    "gpu-multiword": 'measured.figure("figure-4.1-4.2")',
}


def figures(docs: Path) -> dict[str, str]:
    """Writes the figures that the notebooks hold into _static/gallery; the file of each study that has one."""
    out = docs / "_static" / "gallery"
    out.mkdir(exist_ok=True, parents=True)
    found = {}
    for notebook in sorted((docs.parent / "notebooks").glob("*.ipynb")):
        for cell in json.loads(notebook.read_text())["cells"]:
            for name, line in FIGURES.items():
                images = [o["data"]["image/png"] for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})]
                if images and line in "".join(cell["source"]):
                    (out / f"{name}.png").write_bytes(base64.b64decode(images[0]))
                    found[name] = f"../_static/gallery/{name}.png"
    return found


def drawn_stem(name: str) -> str:
    """The figure of a study that the gallery shows: the notebooks', or its first."""
    line = FIGURES.get(name, "")
    return line.split('"')[1] if line else next(iter(tcsim.study.study(name).captions))


def gallery_page(docs: Path) -> str:
    """A paragraph a study, with a figure of the notebooks where they draw one."""
    text = [
        "# Gallery of studies",
        "",
        "Each is a grid of cells with claims that can come out either way; `tcsim study NAME` runs it, `--quick` at a small size. "
        "Figures are those of the {doc}`notebooks <../notebooks/index>`, at full size, or of the quick size where the caption says so.",
        "",
    ]
    drawn = figures(docs)
    for name in tcsim.study.studies():
        declared = tcsim.study.study(name)
        text += [f"## {declared.title}", ""]
        stem = drawn_stem(name)
        small = "" if name in drawn else " At quick size."
        path = drawn.get(name, f"../_static/studies/{name}.png")
        text += [f"![{declared.title}]({path})", "", f"*{markdown(declared.captions[stem])}{small}*", ""]
        text += [f"{markdown(declared.reproduces)}.", "", "```text", f"tcsim study {name} --quick", "```", ""]
        if declared.options:
            text += [row(["option", "what", "full", "quick"]), row(["---"] * 4)]
            text += [
                row([f"`--{o.name.replace('_', '-')}`", markdown(o.help), shown(o.full), shown(o.quick)])
                for o in declared.options
            ]
            text.append("")
    return "\n".join(text)


def shown(value: object) -> str:
    """An option's value, a list by its ends."""
    if isinstance(value, tuple | list) and len(value) > 6:
        return f"{value[0]}, {value[1]} … {value[-1]}"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def api_page() -> str:
    text = [
        "# API",
        "",
        "Public names, from their docstrings. Each has a runnable example: {doc}`the names of tcsim <../reference/examples>`, "
        "{doc}`those of its modules <../reference/modules>`.",
        "",
    ]
    for title, names in GROUPS.items():
        text += [f"## {title}", "", "```{eval-rst}", ".. currentmodule:: tcsim", ""]
        for name in names:
            kind = "autoclass" if isinstance(getattr(tcsim, name), type) else "autofunction"
            text += [
                f".. {kind}:: {name}",
                *(["   :members:"] if kind == "autoclass" and name in ("Unit", "Format") else []),
                "",
            ]
        text += ["```", ""]
    for name in FRAMEWORKS:
        text += framework(name)
    text += ["## Modules", ""]
    for name in MODULES:
        module = getattr(tcsim, name)
        summary = (module.__doc__ or "").split("\n\n")[0].strip().replace("\n", " ")
        text += [f"### tcsim.{name}", "", markdown(summary), ""]
        text += [row(["name", "what"]), row(["---", "---"])]
        for n in own(module):
            what = (getattr(module, n).__doc__ or "").strip().split("\n")[0]
            text.append(row([f"`{n}`", markdown(what)]))
        text.append("")
    return "\n".join(text)


def own(module: ModuleType) -> list[str]:
    """The public functions and classes of a module."""
    public = [n for n in getattr(module, "__all__", dir(module)) if callable(getattr(module, n)) and not n.startswith("_")
              and getattr(getattr(module, n), "__module__", "").startswith("tcsim") and n not in ("Array",)]  # fmt: skip
    return [n for n in public if getattr(module, n).__module__ == module.__name__ or hasattr(module, "__all__")]


def framework(name: str) -> list[str]:
    """The names of `tcsim.torch` or `tcsim.jax`, each with the first line of its docstring, from the sources."""
    module = getattr(tcsim, name)
    folder = Path(module.__file__).parent
    text = [f"## tcsim.{name}", "", markdown((module.__doc__ or "").split("\n\n")[0].replace("\n", " ")), ""]
    text += [row(["name", "what"]), row(["---", "---"])]
    for public in module.__all__:
        tree = ast.parse((folder / f"{module._LATER[public]}.py").read_text())
        found = next(n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == public)
        text.append(row([f"`{public}`", markdown((ast.get_docstring(found) or "").split("\n")[0])]))
    return [*text, ""]


def markdown(text: str) -> str:
    """A docstring's line in Markdown: what stands in no backticks is no markup."""
    parts = re.split(r"(``.*?``|`.*?`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>$\[\]])", r"\\\1", p) for p in parts)


def escaped(docstring: list[str]) -> None:
    """Docstrings here are plain text with backticks: bars and stars are themselves, one backtick is code."""
    for i, line in enumerate(docstring):
        parts = re.split(r"(``.*?``|`[^`]*`)", line)
        made = [
            f"``{p.strip('`')}``" if p.startswith("`") else re.sub(r"([|*])", r"\\\1", re.sub(r"(\w)_(?=\W|$)", r"\1\\_", p))
            for p in parts
        ]
        for at in range(1, len(parts) - 1):  # "`rounding`s": what follows a literal is apart from it
            if parts[at].startswith("`") and parts[at + 1][:1].isalnum():
                made[at] += "\\ "
        docstring[i] = "".join(made)
