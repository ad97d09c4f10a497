"""Outputs that a kernel leaves to others: found again in few rectangles, so that many small problems cost one call, not one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.codegen.jit import inline, kernel
from tcsim.codegen.scratch import room_table
from tcsim.problem import Codes, Problem

# Lines (t, i0, i1, j0, j1): rows i0 … i1 - 1 and columns j0 … j1 - 1 of batch element t.
Boxes: TypeAlias = npt.NDArray[np.int64]
Part: TypeAlias = Callable[[Problem, Codes, Boxes, int | None], None]  # writes the outputs of some boxes, on so many threads
SMALL = 64  # outputs of a box that is not cut further


@inline
def shrunk(marked, t, box):
    """The least box with all marks of another, and how many they are."""
    i0, i1, j0, j1 = box
    top, bottom, left, right, count = i1, i0, j1, j0, 0
    for i in range(i0, i1):
        for j in range(j0, j1):
            if marked[t, i, j]:
                top, bottom = min(top, i), i + 1
                left, right = min(left, j), max(right, j + 1)
                count += 1
    return (top, bottom, left, right), count


@inline
def line(table, i):
    return table[i, 0], table[i, 1], table[i, 2], table[i, 3]


@inline
def set_line(table, i, box):
    table[i, 0], table[i, 1], table[i, 2], table[i, 3] = box


@kernel
def cover_all(marked, small, found, elements):
    """Boxes of all batch elements, and whose they are: halves of halves, until a quarter of each is marked, or it is small.

    How many there are, of which no more are written than there is room for.
    """
    batch, rows, columns = marked.shape
    waiting, boxes = room_table(np.int64(256), np.int64(4), np.int64), 0
    for t in range(batch):
        set_line(waiting, 0, (np.int64(0), rows, np.int64(0), columns))
        depth = 1
        while depth:
            depth -= 1
            box, count = shrunk(marked, t, line(waiting, depth))
            i0, i1, j0, j1 = box
            area = (i1 - i0) * (j1 - j0)
            if count and (area <= small or 4 * count >= area):
                if boxes < len(elements):
                    set_line(found, boxes, box)
                    elements[boxes] = t
                boxes += 1
            elif count:
                i, j = (i0 + i1) // 2, (j0 + j1) // 2
                high = i1 - i0 >= j1 - j0
                set_line(waiting, depth, (i0, i, j0, j1) if high else (i0, i1, j0, j))
                set_line(waiting, depth + 1, (i, i1, j0, j1) if high else (i0, i1, j, j1))
                depth += 2
    return boxes


def boxes_of(marked: npt.NDArray[Any]) -> Boxes:
    """Disjoint boxes that hold every mark of (batch, m, n); a quarter of each is marked, or it is small."""
    if not marked.any():  # as nearly always: nothing is compiled for it
        return np.empty((0, 5), np.int64)
    marked, room = np.ascontiguousarray(marked, np.bool_), 64
    while True:
        found, elements = np.empty((room, 4), np.int64), np.empty(room, np.int64)
        count = cover_all(marked, SMALL, found, elements)
        if count <= room:
            return np.column_stack([elements[:count], found[:count]])
        room = count
