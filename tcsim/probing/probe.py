"""`probe`: which unit a black box is, from its answers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim import arguments
from tcsim.fp.formats import Format, format_named
from tcsim.probing import families, marks, structure
from tcsim.probing.box import Batch, Box, Formats, embedded, of_few, simulated
from tcsim.probing.candidates import Parts, modes, records, scans, unit_of_parts
from tcsim.probing.chance import Chance, chance_of
from tcsim.probing.codes import Rng, nan_codes
from tcsim.probing.result import ProbeResult, result_of_search
from tcsim.probing.search import Found, Judge, best_of, improve, scanned, starting_points

_LENGTHS = (2, 3, 5, 9, 18, 35, 70)
_TRIES = 4
_PERIODS = 8
_DEEP = 3  # kinds of arithmetic looked into further when none explains everything at first
_WORK, _DEEP_WORK = 1e8, 2e8  # products simulated for one kind of arithmetic
_ONE_BLOCK = 0.99
_MARGIN = 0.015  # zeros that fill k up can show in one product
_UNRANDOM = 0.9  # less is explained of what rounds by words of its own
_NEARLY = 0.998  # another order of k would change more than is left to explain
_PAIRED = 64  # the longest order of k that pairs of marks are asked for
_PAIRS = 20  # how many lengths at most
CONFIRM = 100_000


def probe(
    f: Callable[..., Any],
    in_format: str | Format,
    out_format: str | Format,
    *,
    b_format: str | Format | None = None,
    scale: str | Format | None = None,
    scale_block: int = 0,
    k_step: int = 1,
    calls: int = 60,
    confirm: int = CONFIRM,
    table: bool = True,
    seed: int = 0,
) -> ProbeResult:
    """The unit that a black box f(a, b, c) → d is, with what was seen for each part; or that no unit of the family is.

    f
        Takes codes a (batch, m, k), b (batch, k, n), c (batch, m, n), and scales where `scale` names their format, and returns
        c + a·b as codes or values (batch, m, n): a simulator, an instruction, a library's GEMM, a bridge to hardware.
    in_format, b_format, out_format
        Formats of a, of b where it is another, and of c and d.
    scale, scale_block
        Format of block scales and how many products share one.
    k_step
        f takes k in multiples of this; probes are filled up with zeros.
    calls, confirm
        Most calls of f, and how many adversarial outputs must agree at the end.
    table
        Begin with what the records of the table compute on these formats; without it, from nothing.
    seed
        Of the probes, and of the random words of a unit that rounds stochastically: with these it is found bit for bit. Of one
        with words of its own the result's `chance` says how often it rounds up, and no unit is found.

    The same f and seed give the same result. ValueError for formats that no unit has.
    """
    known = Formats(
        format_named(in_format),
        format_named(in_format if b_format is None else b_format),
        format_named(out_format),
        None if scale is None else format_named(scale),
        scale_block,
    )
    box = Box(f, known, arguments.integer(k_step, "k_step", 1), arguments.integer(calls, "calls", 1))
    search = Search(box, np.random.default_rng(seed), Judge(known, arguments.seed(seed)))
    return search.run(confirm, table)


class Search:
    """One black box being asked and explained."""

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
        self.nans = self._nan_codes()
        self.confirmed = self.wanted = 0
        self.pairs: dict[int, Batch | None] = {}
        self.places: dict[int, Batch | None] = {}
        self.stairs: Batch | None = None
        self.chance: Chance | None = None
        self.far = False  # whether marks are to be so large that no random word matters
        self.blocks: dict[tuple[int, ...], Batch | None] = {}

    @property
    def products(self) -> list[Batch]:
        return [self.small, self.large]

    @property
    def all(self) -> list[Batch]:
        return [self.small, *self.sums, self.large, self.marks]

    def _nan_codes(self) -> list[int | None]:
        found = np.concatenate(
            [nan_codes(b.d, self.box.formats.out).ravel() for b in (self.small, self.large) if b.d is not None]
        )
        values, counts = np.unique(found, return_counts=True)
        usual = self.box.formats.out.nan_code
        codes = [int(v) for v in values[np.argsort(-counts, kind="stable")][:6]]
        return list(dict.fromkeys([*(None if code == usual else code for code in codes), None]))

    def run(self, confirm: int, table: bool) -> ProbeResult:
        """The first kind of arithmetic under which every observation is explained, confirmed; or the nearest."""
        self.wanted = confirm
        tried: list[Found] = []
        late = False
        for found in self.recorded() if table else ():
            if self.confirm(found, confirm) is None:
                return self.result(found)
        begun = [f for mode in modes(self.box.formats) for f in starting_points(self.judge, mode, [self.small], self.nans[0])]
        for found in sorted(begun, key=lambda f: -f.score):
            self.judge.allow(_WORK)
            numbers = self.numbers(found)
            best = max((self.judge.score(f.parts, self.products) for f in tried), default=0.0)
            if numbers.score < min(best, 0.99) - _MARGIN:
                continue  # one product already refutes it more than another kind
            if numbers.score > _ONE_BLOCK:
                self.judge.allow(_WORK)
            walked = self.walk(self._again(numbers, self.all))
            if not walked.perfect and walked.score > _ONE_BLOCK:
                self.judge.allow(_WORK)
                walked = self.explain(walked)
            elif not walked.perfect and walked.parts["c_enters"] == "after" and not late:
                late = True
                walked = self.explain(walked)
            if walked.perfect:
                walked = self.settled(walked, confirm)
            if walked.perfect and self.confirmed >= confirm:
                return self.result(walked)
            tried.append(walked)
        self.chance = chance_of(self.box)
        hopeless = self.chance is not None and max(f.score for f in tried) < _UNRANDOM  # by words that no seed says
        for found in () if hopeless else sorted(tried, key=lambda f: -f.score)[:_DEEP]:
            self.judge.allow(_DEEP_WORK)
            deeper = self.settled(self.explain(self._again(found, self.all)), confirm)
            if deeper.perfect and self.confirmed >= confirm:
                return self.result(deeper)
            tried.append(deeper)
        return self.result(max((self._again(f, self.all) for f in tried), key=lambda f: f.score))

    def recorded(self) -> Iterator[Found]:
        """Records of the table that explain everything that was seen."""
        codes = self.nans
        for parts in records(self.box.formats):
            for code in dict.fromkeys((codes[0], parts["nan_code"])):
                found = self._again(Found({**parts, "nan_code": code}, 0.0), self.all, 0.9999999)
                if found.perfect:
                    yield found
                    break

    def settled(self, found: Found, confirm: int) -> Found:
        """Confirmed, or changed until it explains what refuted it, a few times over."""
        for _ in range(_TRIES):
            if not found.perfect:
                return found
            refuted = self.confirm(found, confirm)
            if refuted is None:
                return found
            self.sums.append(refuted)
            self.judge.allow(_WORK)
            found = self.explain(self._again(found, self.all))
        return found

    def numbers(self, found: Found) -> Found:
        """What one product beside c shows."""
        found = improve(self.judge, self._again(found, [self.small]), [self.small])
        return self._nans(improve(self.judge, self._again(found, self.products), self.products, 2))

    def explain(self, found: Found) -> Found:
        """Whatever is left against everything that was seen, and the walk of k again."""
        for _ in range(2):
            if not found.perfect:
                found = self._nans(improve(self.judge, found, self.all, 2), self.all)
            if not found.perfect:
                found = self.walk(found)
            if not found.perfect and found.parts["align_rounding"] != "exact" and found.parts["arithmetic"] == "aligned":
                exact = {**found.parts, "align_rounding": "exact", "fraction_bits": None, "operand_format": None}
                found = max(found, self.walk(self._again(Found(exact, 0.0), self.all)), key=lambda f: f.score)
            if not found.perfect and found.parts["group_size"] > 1:
                found = self.groups(found)
        return found

    def groups(self, found: Found) -> Found:
        """Other groups of scaled products, each with the least exponent that goes with it."""
        sizes = [
            g
            for g in range(2, self.box.formats.scale_block + 1)
            if found.parts["block_size"] % g == 0 == self.box.formats.scale_block % g
        ]
        for size in sizes:
            scan = next((s for s in scans(self.box.formats, found.parts) if s.name == "min_exponent"), None)
            begun = self._again(Found({**found.parts, "group_size": size}, 0.0), self.all)
            if scan is not None and begun.score >= found.score - 0.01:
                begun = scanned(self.judge, begun, scan, self.all)
            found = max(found, begun, key=lambda f: f.score)
        return found

    def _again(self, found: Found, batches: list[Batch], above: float = -2.0) -> Found:
        return Found(found.parts, self.judge.score(found.parts, batches, above))

    def _nans(self, found: Found, batches: list[Batch] | None = None) -> Found:
        changes: list[Parts] = [{"nan_code": code, "nan_from": kept} for code in self.nans for kept in ("code", "operand")]
        used = batches or [self.small, self.large]
        return best_of(self.judge, self._again(found, used), changes, used)

    def walk(self, found: Found) -> Found:
        """The block size and what goes with it; the order of k where it is not ascending."""
        label = self.label
        used = [*self.sums, self.marks]
        best = self._again(found, used)
        runs = structure.ascending(label)
        if not runs:
            best = self.order(best, label)
        if not best.perfect:
            best = structure.walked_upwards(self.judge, best, used, structure.runs(label), 72)
        if not best.perfect and runs and self.orders(best):
            best = self.order(best, label)
        return self._again(best, self.all)

    def orders(self, found: Found) -> bool:
        """Whether an order of k can be what is left to explain: one product is, and k may be ordered."""
        nearly = found.score > _NEARLY or self.judge.score(found.parts, self.products) < _ONE_BLOCK
        return self.box.formats.scale is None and not nearly and not self.judge.tired

    def order(self, found: Found, label: Any) -> Found:
        """The order of k of a unit that does not take it upwards, from marks; from pairs of marks where those leave it open."""
        used = [*self.sums, self.marks]
        best = found
        for length, size in structure.likely(label)[:_PERIODS]:
            start_from = found
            if found.parts["arithmetic"] == "aligned":
                start_from = self.within(found, label, size, length)
                if start_from.score < _ONE_BLOCK:
                    continue
            best = self.placed(best, start_from, used, size, length)
            if best.perfect:
                return best
            if start_from.perfect:
                found = start_from  # more products share a longer block: begin there with what a shorter one showed
        return best if structure.likely(label) and found.parts["arithmetic"] == "aligned" else self.placed(best, found, used)

    def marks_of(self, length: int) -> Batch | None:
        """Marks at every k of so many products."""
        if length not in self.places:
            self.places[length] = self.box.more(marks.marks(self.rng, self.box.formats, length))
        answered = self.places[length]
        return None if answered is None else replace(answered, name="marks")

    def step_of(self, length: int) -> Batch | None:
        """The same from one call for all lengths, with fewer outputs each."""
        self.stairs = self.stairs or self.box.more(marks.stairs(self.rng, self.box.formats, structure.LONG, far=self.far))
        return None if self.stairs is None else structure.step_of(self.stairs, length)

    def placed(self, best: Found, begun: Found, used: list[Batch], size: int = 1, length: int | None = None) -> Found:
        """The best order of k among those that marks allow, each made finer by pairs where it does not explain everything."""
        random = "sr" in (begun.parts["rounding"], begun.parts["product_rounding"], begun.parts["align_rounding"])
        answers = self.step_of if random or length is None else self.marks_of
        treelike = begun.parts["arithmetic"] != "aligned"
        if random and not self.far:
            self.far, self.stairs, self.pairs = True, None, {}
        for parts, n in structure.placed(self.judge, answers, begun, [size], length):
            ordered = Found(parts, self.judge.score(parts, used))
            if treelike and not ordered.perfect and n <= _PAIRED and (n in self.pairs or len(self.pairs) < _PAIRS):
                if n not in self.pairs:
                    self.pairs[n] = self.box.more(marks.pairs(self.rng, self.box.formats, n, far=self.far))
                asked = self.pairs[n]
                paired = None if asked is None else structure.by_pairs(self.judge, asked, n, parts)
                if paired is not None:
                    ordered = max(ordered, Found(paired, self.judge.score(paired, used)), key=lambda f: f.score)
            best = max(best, ordered, key=lambda f: f.score)
            if best.perfect or self.judge.tired:
                break
        return best

    def within(self, found: Found, label: Any, size: int, length: int) -> Found:
        """Numbers from sums of products that share a block, wherever along k that is."""
        of = next(int(x) for x in label if np.count_nonzero(label[:length] == x) == size)
        members = np.flatnonzero(label[:length] == of)
        key = (length, *members.tolist())
        if key not in self.blocks:
            inner = families.sum_batches(self.rng, self.box.formats, size, name=f"one block at {', '.join(map(str, members))}")
            self.blocks[key] = self.box.more(embedded(inner, members, length))
        asked = self.blocks[key]
        if asked is None:
            return found
        inner = replace(asked, a=asked.a[:, :, members], b=asked.b[:, members], d=None)
        upwards = replace(embedded(inner, np.arange(size), asked.a.shape[2]), d=asked.d)
        parts = {**found.parts, "block_size": size * found.parts["group_size"]}
        used = [upwards, *self.products]
        return improve(self.judge, self._again(Found(parts, 0.0), used), used, 2)

    def confirm(self, found: Found, outputs: int) -> Batch | None:
        """Fresh adversarial sums, `outputs` of them at least: the first call that refutes the candidate, None where none does."""
        unit = unit_of_parts(self.box.formats, found.parts)
        assert unit is not None
        self.confirmed, i = 0, 0
        lengths = (unit.block_size, 2, unit.instruction_k, 1, unit.block_size + 1, 2 * unit.instruction_k + 1)
        while self.confirmed < outputs:
            length = lengths[i % 6] if i % 2 else self.box.whole(lengths[i % 6])
            batch = families.sum_batches(self.rng, self.box.formats, length, batches=32, side=24, name="confirmation")
            asked = self.box.ask(batch)
            assert asked.d is not None
            if not np.array_equal(simulated(unit, asked, seed=self.judge.seed), asked.d):
                return asked
            self.confirmed += asked.size
            i += 1
        return None

    def result(self, found: Found) -> ProbeResult:
        unit = unit_of_parts(self.box.formats, found.parts)
        assert unit is not None
        return result_of_search(unit, found, self.box, self.judge, self.confirmed, self.wanted, self.chance)


__all__ = ["CONFIRM", "ProbeResult", "probe"]
