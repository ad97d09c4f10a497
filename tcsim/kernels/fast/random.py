"""The random words of stochastic rounding on the fast path: Philox4x32-10 for vectors of 16 outputs, four steps at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tcsim.codegen.vector_ops import I32, I64, LANES, Emitted, Variable
from tcsim.fp import philox

_TOGETHER = 2  # vectors drawn at once: alone, each of their halves would wait for its own multiplications


class VectorDraws:
    """The words of several vectors of outputs; even and odd lanes of a vector are halves of eight 64-bit lanes."""

    def __init__(self, b: ir.IRBuilder, seed: Emitted, elements: list[Emitted]) -> None:
        self.b, self.seed = b, seed
        self.elements = [[x.lanes(list(range(half, LANES, 2))) for half in (0, 1)] for x in elements]
        with b.goto_entry_block():
            self.kept = b.alloca(ir.VectorType(I32, LANES), 4 * len(elements))
        self.group = Variable(b, Emitted(b, I64(-1)))

    def words(self, step: Emitted) -> list[Emitted]:
        """The words of one step, a vector of outputs each, in ascending order of steps."""
        group = step >> 2
        with self.b.if_then(group.compare("!=", self.group.get()).v):
            for first in range(0, len(self.elements), _TOGETHER):
                self._draw(range(first, min(first + _TOGETHER, len(self.elements))), group)
            self.group.set(group)
        places = [(step & 3) + 4 * i for i in range(len(self.elements))]
        return [Emitted(self.b, self.b.load(self.b.gep(self.kept, [place.v]))) for place in places]

    def _draw(self, vectors: range, group: Emitted) -> None:
        """Draw the four words of steps 4·group … 4·group + 3 for some vectors."""
        found = self._rounds([half for i in vectors for half in self.elements[i]], group)
        joined = [lane for j in range(LANES // 2) for lane in (2 * j, LANES + 2 * j)]
        for n, i in enumerate(vectors):
            for word, (even, odd) in enumerate(zip(found[2 * n], found[2 * n + 1], strict=True)):
                mask = ir.Constant(ir.VectorType(I32, LANES), joined)
                both = self.b.shuffle_vector(even.bits_as(I32, LANES).v, odd.bits_as(I32, LANES).v, mask)
                self.b.store(both, self.b.gep(self.kept, [I64(4 * i + word)]))

    def _rounds(self, elements: list[Emitted], group: Emitted) -> list[list[Any]]:
        """Ten rounds on counters of 8 lanes; the high half of a lane is meaningless except after a multiplication."""
        k0, k1 = self.seed & 0xFFFFFFFF, self.seed >> 32
        states = [[x, x >> 32, x.like(group), x.like(0)] for x in elements]
        for _ in range(philox.ROUNDS):
            products = [((c0 & 0xFFFFFFFF) * philox.M0, (c2 & 0xFFFFFFFF) * philox.M1) for c0, _, c2, _ in states]
            states = [
                [(p1 >> 32) ^ (c1 ^ k0), p1, (p0 >> 32) ^ (c3 ^ k1), p0]
                for (p0, p1), (_, c1, _, c3) in zip(products, states, strict=True)
            ]
            k0, k1 = (k0 + philox.W0) & 0xFFFFFFFF, (k1 + philox.W1) & 0xFFFFFFFF
        return states
