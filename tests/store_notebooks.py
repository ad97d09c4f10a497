"""Runs notebooks from top to bottom at full size and stores what they show: `python tests/store_notebooks.py 3 6` (all without
numbers). `--quick` runs the small size of continuous integration, elsewhere, and stores nothing; both print the seconds of each cell
that took more than two. Without ipywidgets in what runs them, so that pages show pictures where a live kernel has sliders."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


class Timed(NotebookClient):
    """Says which cells take time, and sets the small size as nbmake does."""

    quick = False

    async def async_execute_cell(self, cell, cell_index, *more, **options):  # type: ignore[no-untyped-def]
        begin = time.perf_counter()
        done = await super().async_execute_cell(cell, cell_index, *more, **options)
        took = time.perf_counter() - begin
        if took > 2:
            print(f"  cell {cell_index}: {took:.1f} s  {cell.source.splitlines()[0][:80]}", flush=True)
        if self.quick and cell.cell_type == "code":
            for line in cell.metadata.get("nbmake", {}).get("post_cell_execute", ()):
                await super().async_execute_cell(nbformat.v4.new_code_cell(line), cell_index, store_history=False)
        return done


def cleaned(cell: nbformat.NotebookNode) -> None:
    """No progress bars, no times: what two runs would share."""
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
        cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        merged: list[nbformat.NotebookNode] = []
        for output in cell.outputs:
            if merged and output.output_type == "stream" == merged[-1].output_type:
                merged[-1].text += output.text
            else:
                merged.append(output)
        cell.outputs = merged


def without_ipywidgets(folder: Path) -> dict[str, str]:
    """An environment in which `import ipywidgets` fails."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "ipywidgets.py").write_text("raise ImportError('hidden: stored pages have pictures')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])])}


def store(path: Path, *, quick: bool) -> None:
    notebook = nbformat.read(path, as_version=4)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as elsewhere:
        Path(elsewhere, "tests").symlink_to(FOLDER.parent / "tests")
        at = Path(elsewhere, "notebooks") if quick else FOLDER
        at.mkdir(exist_ok=True)
        client = Timed(notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(at)}})
        client.quick = quick
        client.execute(env=without_ipywidgets(Path(elsewhere)))
    print(f"{path.name}: {time.perf_counter() - begin:.1f} s", flush=True)
    if not quick:
        for cell in notebook.cells:
            cleaned(cell)
        notebook.metadata.get("language_info", {}).pop("version", None)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    numbers = [argument for argument in sys.argv[1:] if argument.isdigit()]
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not numbers or path.name.split("_")[0] in numbers:
            store(path, quick="--quick" in sys.argv)
