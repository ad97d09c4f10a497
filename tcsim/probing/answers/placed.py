"""Orders of k that marks allow: every place's answer matched with a k's, made finer by pairs of marks where they are summed as a tree."""

from __future__ import annotations

from dataclasses import replace

from tcsim.probing.box import Batch, Box
from tcsim.probing.questions import marks
from tcsim.probing.questions.codes import Rng
from tcsim.probing.search import structure
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.focus import rounds_randomly

_PAIRED = 64  # the longest order of k that pairs of marks are asked for
_PAIRS = 20  # how many lengths at most


class Placed:
    """What a black box was asked of marks, by the number of products."""

    def __init__(self, box: Box, rng: Rng, judge: Judge) -> None:
        self.box, self.rng, self.judge = box, rng, judge
        self._far = False  # whether marks are to be so large that no random word matters
        self._marks: dict[int, Batch | None] = {}
        self._pairs: dict[int, Batch | None] = {}
        self._stairs: dict[bool, Batch | None] = {}
        self._steps: dict[tuple[bool, int], Batch | None] = {}

    def best(self, best: Found, begun: Found, used: list[Batch], size: int = 1, length: int | None = None) -> Found:
        """The best order of k among those that marks allow, each made finer by pairs where it does not explain everything."""
        random = rounds_randomly(begun.parts)
        answers = self._step if random or length is None else self._marks_of
        treelike = begun.parts["arithmetic"] != "aligned"
        if random and not self._far:
            self._far, self._pairs = True, {}
        for parts, n in structure.placed(self.judge, answers, begun, [size], length):
            ordered = Found(parts, self.judge.score(parts, used))
            if treelike and not ordered.perfect and n <= _PAIRED and (n in self._pairs or len(self._pairs) < _PAIRS):
                if n not in self._pairs:
                    self._pairs[n] = self.box.more(marks.pairs(self.rng, self.box.formats, n, far=self._far))
                asked = self._pairs[n]
                paired = None if asked is None else structure.by_pairs(self.judge, asked, n, parts)
                if paired is not None:
                    ordered = max(ordered, Found(paired, self.judge.score(paired, used)), key=lambda f: f.score)
            best = max(best, ordered, key=lambda f: f.score)
            if best.perfect or self.judge.tired:
                break
        return best

    def _marks_of(self, length: int) -> Batch | None:
        """Marks at every k of so many products."""
        if length not in self._marks:
            answered = self.box.more(marks.marks(self.rng, self.box.formats, length))
            self._marks[length] = None if answered is None else replace(answered, name="marks")
        return self._marks[length]

    def _step(self, length: int) -> Batch | None:
        """The same from one call for all lengths, with fewer outputs each."""
        if self._far not in self._stairs:
            self._stairs[self._far] = self.box.more(marks.stairs(self.rng, self.box.formats, structure.LONG, far=self._far))
        stairs = self._stairs[self._far]
        found = None if stairs is None else structure.step_of(stairs, length)
        return self._steps.setdefault((self._far, length), found)
