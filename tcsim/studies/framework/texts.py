"""Modules made from a study file's text as it is now.

Python keeps bytecode beside a module and takes it for the text's own as long as the time, in seconds, and the size agree. A
study that is edited and run within a second would run the code before, and its results would be stored as the new code's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

_read: dict[str, tuple[str, bytes]] = {}  # file and text of each module made here


class _FromText(SourceFileLoader):
    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.text, self.path)


def module_of(path: Path) -> ModuleType:
    """The module that `import` would find under the file's name, made anew where the file's text is not that of the last time.

    Its folder must be on the import path. ValueError where the name is another module's, or none.
    """
    name, text = path.stem, path.read_bytes()
    if "." in name:
        raise ValueError(f"{path.name} cannot be imported: a module's name has no dots, {name.replace('.', '_')}.py would do")
    known = sys.modules.get(name)
    spec = None if known is not None and known.__spec__ is None else find_spec(name)
    found = getattr(known, "__file__", None) if spec is None else spec.origin
    if found is None or Path(found).resolve() != path.resolve():
        raise ValueError(f"another module is called {name} ({found or 'built in'}); give {path} a name of its own")
    if known is not None and _read.get(name, (found, text))[1] == text:
        return known
    return _made(name, str(path.resolve()), text)


def _made(name: str, path: str, text: bytes) -> ModuleType:
    loader = _FromText(name, path, text)
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    _read[name] = path, text
    return module


def text_made_from(name: str) -> bytes | None:
    """The text that a module was made from, None if it was not made here."""
    return _read[name][1] if name in _read else None


def texts() -> dict[str, tuple[str, bytes]]:
    """What another process needs to have the same modules."""
    return dict(_read)


def make_all(texts: Mapping[str, tuple[str, bytes]]) -> None:
    """The modules of another process, from the same text, though the file may have been edited since."""
    for name, (path, text) in texts.items():
        if _read.get(name) != (path, text):
            _made(name, path, text)
