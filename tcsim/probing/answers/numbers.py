"""The numbers of a kind of arithmetic, from one product beside c, and from a few where c comes late."""

from __future__ import annotations

from tcsim.probing.answers.walk import Walker
from tcsim.probing.search import simpler
from tcsim.probing.search.cut import apart, cut_at_places, uncut
from tcsim.probing.search.elimination import Found, best_of, improve
from tcsim.probing.search.singly import narrow

_ONE_BLOCK, _NEARLY = 0.99, 0.998
_MARGIN = 0.015  # zeros that fill k up can show in one product
_HOPELESS = 0.2  # what its own numbers leave so far behind another kind is asked for remainders last
_FAR_BEHIND = 0.1  # what explains so much less of one product than another kind is not looked at further
_SHAPES = (3, 1)  # block sizes for which remainders are read before blocks are known
_FEW_LATE = (4, 9)  # how many of the shortest sums are looked at, and the block that holds their products


class Numbers(Walker):
    """What numbers of a kind explain before its walk of k is known."""

    def numbers(self, found: Found) -> Found:
        """What one product beside c shows; begun with how the best kind so far rounds results, where that explains more."""
        if self.tried or self.waiting:
            best = max(self.tried or self.waiting, key=lambda f: f.score).parts
            shared = {key: best[key] for key in ("rounding", "out_precision", "zero_sign")}
            found = max(found, self._again(Found({**found.parts, **shared}, 0.0), [self.small]), key=lambda f: f.score)
        found = self._again(self.read_off(found, rounded=self.best_numbers() < 1.0), [self.small])
        least = self.best_numbers() - _HOPELESS
        if least > 0 and not self.deep and improve(self.judge, found, [self.small], 1).score < least:
            self.put_off.append(found)
            return Found(found.parts, -1.0)
        found = improve(self.judge, self.read(found, [self.small], _SHAPES), [self.small])
        again = self.read(found, [self.small], _SHAPES)
        found = found if again is found else max(found, improve(self.judge, again, [self.small]), key=lambda f: f.score)
        nearest = _NEARLY if found.score >= self.best_numbers() - _MARGIN else _ONE_BLOCK
        if found.score < nearest:  # what was changed while numbers were far off may hold them there
            plain = uncut(self.judge, self._again(Found({**found.parts, **simpler.PLAIN}, 0.0), [self.small]), [self.small])
            aligned = found.parts["arithmetic"] == "aligned"
            places = cut_at_places(self.judge, found.parts, [self.small]) if aligned else []
            begun = plain, narrow(self.judge, found, [self.small]), best_of(self.judge, found, places, [self.small])
            improved = [improve(self.judge, f, [self.small]) for f in begun if f.parts != found.parts]
            found = max([found, *improved], key=lambda f: f.score)
        if found.score < min(self.best_numbers(), _ONE_BLOCK) - _FAR_BEHIND:
            return found
        found = self._again(found, self.products)
        found = simpler.without_scaled(self.judge, self._nans(improve(self.judge, found, self.products, 2)), self.products)
        return self.of_few(found) if found.parts["c_enters"] == "after" and found.score > _NEARLY else found

    def of_few(self, found: Found) -> Found:
        """With numbers that explain sums of a few products as one block's, whatever their order, where c comes late: one alone shows none."""
        count, size = _FEW_LATE
        used = [*self.products, *self.sums[:count]]
        begun = self._again(Found({**found.parts, "block_size": size}, 0.0), used)
        if begun.score < 0 or begun.perfect:
            return found
        better = uncut(self.judge, begun, used)
        better = better if better.perfect else improve(self.judge, better, used, 1)
        if not better.perfect:
            return found
        return self._again(Found({**better.parts, "block_size": found.parts["block_size"]}, 0.0), self.products)

    def read_off(self, found: Found, *, rounded: bool) -> Found:
        """A two-stage sum's cuts as every distance between one product and c shows them; `rounded`: other roundings of results, too."""
        if found.parts["arithmetic"] != "two-stage":
            return found
        used = [*self.beside, self.small]
        begun = uncut(self.judge, self._again(found, [self.small]), [self.small]) if rounded else found
        begun = max(begun, narrow(self.judge, found, [self.small]), key=lambda f: f.score) if rounded else begun
        best = apart(self.judge, self._again(begun, used), used)
        if best.perfect or not rounded:
            return best
        return max(best, apart(self.judge, self._again(found, used), used), key=lambda f: f.score)
