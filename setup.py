"""The one build step that pyproject.toml cannot say: generating tcsim/_cpfloat.py from cffi_build/."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPy(build_py):
    """build_py that also writes the cffi module, into the source tree for an editable install."""

    def run(self) -> None:
        super().run()
        folder = Path(self.get_package_dir("tcsim") if self.editable_mode else Path(self.build_lib, "tcsim"))
        folder.mkdir(parents=True, exist_ok=True)
        runpy.run_path(str(Path(__file__).parent / "cffi_build" / "cpfloat.py"))["write"](folder / "_cpfloat.py")

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), "cffi_build/cpfloat.py"]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib, "tcsim", "_cpfloat.py"))]


setup(cmdclass={"build_py": BuildPy})
