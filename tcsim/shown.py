"""How results show themselves: in a line at a prompt, in full when printed and in a notebook."""

from __future__ import annotations

from html import escape

_LONGEST = 150


class Shown:
    """A result whose `repr` is one line and whose `str` says everything; a notebook shows the latter.

    A dataclass takes this with ``repr=False``.
    """

    __slots__ = ()

    def _line(self) -> str:
        """The result in a line: the first of `str`, unless a class knows a better one."""
        return str(self).partition("\n")[0]

    def __repr__(self) -> str:
        line = self._line()
        return f"<{line if len(line) <= _LONGEST else line[: _LONGEST - 1] + '…'}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
