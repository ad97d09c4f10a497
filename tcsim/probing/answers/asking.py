"""What a black box is asked before anything is known of it, and what one product says of a kind of arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tcsim.hardware.choices import ZERO_SIGNS
from tcsim.probing.answers import groups, remainders
from tcsim.probing.answers.climbs import Climbs
from tcsim.probing.answers.orders import Orders
from tcsim.probing.answers.placed import Placed
from tcsim.probing.answers.shortened import Shortened
from tcsim.probing.answers.tides import Tides
from tcsim.probing.box import Batch, Box, nans_of, of_few
from tcsim.probing.questions import families, marks
from tcsim.probing.questions.chance import Chance
from tcsim.probing.questions.codes import Rng, kept_bits, magnitude_codes
from tcsim.probing.questions.edges import ladders
from tcsim.probing.questions.rungs import rungs
from tcsim.probing.search import structure
from tcsim.probing.search.candidates import Parts, moves, records, scans
from tcsim.probing.search.elimination import ALL, Found, Judge, best_of, improve, scanned
from tcsim.probing.search.holders import name_or_format

FAR = 0.9  # what begins further off
WORK = 6e7  # products simulated
RUNGS = 4  # products among which rungs are
LADDERS = 600  # outputs
_LENGTHS = (2, 3, 5, 9, 18, 35, 70)
_NANS = 5  # patterns tried of either kind


class Asking:
    """What a black box was asked, and what one product says of a kind of arithmetic."""

    def __init__(self, box: Box, rng: Rng, judge: Judge) -> None:
        self.box, self.rng, self.judge = box, rng, judge
        known = box.formats
        self.small = box.ask(families.one_product(rng, known, 6))
        self.large = box.ask(families.one_product(rng, known, 16))
        asked = box.ask(marks.marks(rng, known, box.whole(structure.REACH)))
        self.label = structure.labels(asked)
        few = box.ask(marks.marks(rng, known, box.whole(structure.REACH), rows=5, columns=8))
        self.marks = of_few(few, 5, 8)  # what was recorded may hold more
        self.sums = [box.ask(families.sum_batches(rng, known, box.whole(k) if i % 2 else k)) for i, k in enumerate(_LENGTHS)]
        self.cut = not known.a.integer and known.scale is None  # whether it is asked where terms are cut
        steps = [box.more(ladders(rng, known, LADDERS)), box.more(rungs(rng, known, RUNGS))] if self.cut else []
        self.steps = [x for x in steps if x is not None]
        self.sums += self.steps
        self.left = None if known.a.integer else remainders.answered_remainders(box, rng.spawn(1)[0])
        self.sums += [] if self.left is None else [self.left.batch]
        beside = box.more(rungs(rng, known, 1)) if self.cut else None
        self.beside = [] if beside is None else [beside]
        judge.group = groups.size_told(box)
        self.nans = self._nan_codes()
        self.tried: list[Found] = []
        self.waiting: list[Found] = []  # numbers of kinds that do not explain one product
        self.unfinished: list[tuple[Found, Found]] = []  # walks that had too little work, and the numbers that they began with
        self.put_off: list[Found] = []  # kinds that are tried after all others
        self.reached: dict[tuple[Any, ...], float] = {}  # of one product by numbers of each mode, from where it began last
        self.begun: list[tuple[bool, Parts]] = []  # whether all kinds were tried once, and numbers from which k was walked then
        self.confirmed = self.wanted = 0
        self.told_along: set[str] = set()  # numbers of which all values were asked
        self.saturated: Batch | None = None
        self.short = Shortened(box, rng, judge, self.sums)
        self.asked_orders, self.placed = Orders(box, rng, judge, self.sums), Placed(box, rng, judge)
        self.tides = Tides(box, rng)
        self.climbs = Climbs(box, rng.spawn(1)[0], judge, self.short)
        self.chance: Chance | None = None
        self.deep = False  # whether every kind of arithmetic was tried once
        self.ascending = False  # whether marks show that k is taken upwards
        self.taken: tuple[Any, int, int] | None = (
            None  # every k's block, the length of the order, the blocks' size, as contests show
        )
        self.blocks: dict[tuple[int, ...], Batch | None] = {}
        self.pairs_alone: list[Batch] = []  # two products beside zeros, once they are asked for

    def kept_without_c(self) -> int:
        """How many bits answers to two products beside a zero have at most: where c comes late, those of a block's result."""
        out, two = self.box.formats.out, self.sums[0]
        assert two.d is not None
        return kept_bits(two.d[magnitude_codes(two.c, out) == 0], out)

    @property
    def products(self) -> list[Batch]:
        return [self.small, self.large]

    @property
    def all(self) -> list[Batch]:
        return [self.small, *self.sums, *self.beside, self.large, self.marks]

    def _nan_codes(self) -> list[int | None]:
        """NaN patterns of results: those of no NaN operand first, then the most frequent."""
        known = self.box.formats
        usual, codes = known.out.nan_code, []
        for made in (True, False):
            found = [nans_of(batch, known, made).ravel() for batch in (self.small, self.large)]
            values, counts = np.unique(np.concatenate(found), return_counts=True)
            codes += [int(v) for v in values[np.argsort(-counts, kind="stable")][:_NANS]]
        return list(dict.fromkeys([*(None if code == usual else code for code in codes), None]))

    def _again(self, found: Found, batches: list[Batch], above: float = -2.0) -> Found:
        return Found(found.parts, self.judge.score(found.parts, batches, above))

    def _nans(self, found: Found, batches: list[Batch] | None = None) -> Found:
        """What no number depends on: NaN patterns, and the signs of zeros."""
        out = name_or_format(self.box.formats.out)  # factors in the output's format may keep theirs
        kept: list[Parts] = [{"nan_from": "code"}, {"nan_from": "operand"}, {"nan_from": "operand", "operand_format": out}]
        changes: list[Parts] = [{"nan_code": code, **how} for code in self.nans for how in kept]
        if found.parts["arithmetic"] == "paired":
            usual = self.box.formats.out.nan_code
            factors = [usual if code is None else code for code in self.nans]
            changes = [{"nan_code": code, "factor_nan": factor} for code in self.nans for factor in factors]
        used = batches or [self.small, self.large]
        named = best_of(self.judge, self._again(found, used), changes, used)
        signed = best_of(self.judge, named, [{"zero_sign": sign} for sign in ZERO_SIGNS], used)
        least = [] if signed.perfect else [s for s in scans(self.box.formats, signed.parts) if s.name == "min_exponent"]
        lost = [{"zero_sign": sign, "min_exponent": e} for s in least for e in s.coarse for sign in ZERO_SIGNS]
        return best_of(self.judge, signed, lost, used)  # what is cut to nothing keeps its sign in some of them

    def begun_of_pairs(self, found: Found) -> Found:
        """A paired sum with its NaN patterns, and its numbers where those of the table are far off, which says nothing of its kind; no
        nearer than before where its best numbers are far off as well: other kinds begin without theirs."""
        self.judge.allow(WORK)
        found = self._nans(found, [self.small])
        if found.score >= FAR:
            return found
        better = improve(self.judge, self._cut_by_pairs(found), [self.small], 1)
        return better if better.score >= FAR else Found(better.parts, found.score)

    def _cut_by_pairs(self, found: Found) -> Found:
        """The best of a paired sum cut in each way, at the place that shows under it: of a wrong way no place is any nearer."""
        for change in dict(moves(self.judge.known, found.parts))["zeros"]:
            begun = self._again(Found({**found.parts, **change}, 0.0), [self.small])
            cut = next(scan for scan in scans(self.judge.known, begun.parts) if scan.name == "fraction_bits")
            found = max(found, scanned(self.judge, begun, cut, [self.small]), key=lambda f: f.score)
        return found

    def with_zeros(self, found: Found) -> Found:
        """With zeros and subnormals as one product shows them: a kind is not far off for those."""
        self.judge.allow(WORK)
        return best_of(self.judge, found, dict(moves(self.judge.known, found.parts)).get("zeros", []), [self.small])

    def best_numbers(self) -> float:
        """How much of one product the best kind of arithmetic explained so far."""
        return max((self.judge.score(f.parts, self.products) for f in (*self.tried, *self.waiting)), default=0.0)

    def recorded(self) -> Iterator[Found]:
        """Records of the table that explain everything that was seen."""
        codes = self.nans
        for parts in records(self.box.formats):
            for code in dict.fromkeys((codes[0], parts["nan_code"])):
                found = self._again(Found({**parts, "nan_code": code}, 0.0), self.all, ALL)
                if found.perfect:
                    yield found
                    break
