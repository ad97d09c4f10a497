"""Fits the trees of `tcsim.probing.libraries.choices` to answers of cublasLt's heuristic, and counts on surveyed calls how often they are right.

`python -m tcsim_gpu.choices_fit fit ANSWERS.npz OUT ...`: answers by `lt_choices`, and surveys by `predict_survey` whose calls
name the kernels of an answer's numbers; needs scikit-learn, which nothing else does. `... count OUT ...` then counts on surveys
of other draws how often each rank of a guess is right.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from tcsim.probing.libraries.choices import (
    LAYOUT_BITS,
    LEAF,
    MOST,
    MULTIPROCESSORS,
    NONE,
    choices,
    choices_path,
    features,
    ranked,
    tile_of,
    tiles,
    walk_key,
    waves_of,
)
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.probing.predict import catalogue_launches, unit_of_kind
from tcsim_gpu.judged import launch_of
from tcsim_gpu.library_calls import LibraryCall, gemm_kind
from tcsim_gpu.predict_report import read_survey
from tcsim_gpu.segments import asks_for_marks

GPU, LIBRARY = "h200", "cublas"
LEAVES, LEAST = 4000, 3  # of a tree, and answers in a leaf
RANKS = 5
JET, VECTOR = 66, (10, 11, 13, 14, 16)  # algorithms: nvjet; kernels of vectors and thin matrices
WITH_CUSTOM = (36, 41, 43)
NUMBER_KEYS = ("algorithm", "tile", "splits", "reduction", "custom", "stages")
Numbers = dict[str, int]


def plain_rows(folder: str) -> list[dict[str, Any]]:
    """The plain calls of a survey, with their launches."""
    rows = []
    for row in read_survey(folder)[1]:
        call: LibraryCall = row["call"]
        if call.op == "gemmEx" and call.alpha == 1 and not call.beta and row["kernels"] and "algorithm" in row["lt"]:
            rows.append({"call": call, "launch": launch_of(call, row), "numbers": row["lt"], "section": row["section"]})
    return rows


class Templates:
    """Kernels by the numbers that cublasLt gives for them; where none ran with all of these, by fewer of them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.known: list[dict[Any, Counter[Launch]]] = [
            defaultdict(Counter) for _ in self.keys(rows[0]["call"], rows[0]["numbers"])
        ]
        named: dict[Any, Counter[tuple[int, int]]] = defaultdict(Counter)
        for row in rows:
            launch = replace(row["launch"], shape=None, regions=(), pieces=1, contiguous=True, splits=1)
            for level, key in zip(self.known, self.keys(row["call"], row["numbers"]), strict=True):
                level[key][launch] += 1
            if tile := tile_of(launch.name):
                named[row["numbers"]["algorithm"], row["numbers"]["tile"]][tile] += 1
        self.tiles = {key: counts.most_common(1)[0][0] for key, counts in named.items()}

    @staticmethod
    def keys(call: Any, q: Numbers) -> list[Any]:
        thin, cut = (call.m == 1) + 2 * (call.n == 1), q["splits"] > 1
        most = (call.kind, call.layout, thin, q["algorithm"], q["tile"], q["reduction"], q["custom"], q["stages"], cut)
        kind, algorithm = call.kind, q["algorithm"]
        return [
            most, most[:4] + most[5:], (kind, *most[3:4], *most[5:]), (kind, algorithm, q["stages"], cut), (kind, algorithm, cut),
            (kind.split(">")[0], algorithm, cut),
        ]  # fmt: skip

    def of(self, call: Any, q: Numbers) -> Launch | None:
        for level, key in zip(self.known, self.keys(call, q), strict=True):
            if key in level:
                return level[key].most_common(1)[0][0]
        return None


def label_of(call: Any, q: Numbers, tile: tuple[int, int] | None) -> tuple[Any, ...]:
    """What of an answer decides the order of addition: the last two are slices of k, and waves where they follow from these."""
    algorithm, cut = q["algorithm"], 1 < q["splits"] < NONE
    vector = algorithm in VECTOR
    stages, custom = q["stages"] if algorithm != JET else 0, q["custom"] if vector or algorithm in WITH_CUSTOM else 0
    where = (call.layout, (call.m == 1) + 2 * (call.n == 1), q["tile"]) if vector else (q["tile"] if cut else 0,)
    waves = waves_of(q["splits"], tiles((call.m, call.n), tile), MULTIPROCESSORS[GPU]) if cut and tile else 0
    return (algorithm, stages, custom, q["reduction"], *where, 0 if waves else q["splits"] if cut else 1, waves)


def fit_kind(kind: str, answers: dict[str, Any], templates: Templates, table: Table) -> None:
    """One kind's tree and its labels, into the table."""
    made = []
    for row in zip(*(answers[key].tolist() for key in ("m", "n", "k", "layout", *NUMBER_KEYS)), strict=True):
        m, n, k, layout, *numbers = row
        call = LibraryCall("gemmEx", kind, m, n, k, answers["layouts"][layout], 0)
        q = dict(zip(NUMBER_KEYS, numbers, strict=True))
        made.append((label_of(call, q, templates.tiles.get((q["algorithm"], q["tile"]))), call, q))
    first: dict[Any, Any] = {}
    for label, call, q in made:
        first.setdefault(label, (call, q))
    ids = {label: i for i, label in enumerate(first)}
    table.add_labels(
        [
            (label, templates.of(*first[label]), templates.tiles.get((first[label][1]["algorithm"], first[label][1]["tile"])))
            for label in ids
        ]
    )
    bits = np.array([LAYOUT_BITS[call.layout] for _, call, _ in made])
    x = features(answers["m"], answers["n"], answers["k"], bits, MULTIPROCESSORS[GPU])
    y = np.array([ids[label] for label, _, _ in made])
    model = import_module("sklearn.tree").DecisionTreeClassifier(min_samples_leaf=LEAST, max_leaf_nodes=LEAVES, random_state=0)
    table.add_tree(model.fit(x, y))


class Table:
    """The arrays of `choices.Choices` as they grow."""

    def __init__(self) -> None:
        self.templates: dict[Launch, int] = {}
        self.labels: list[tuple[int, int, int, tuple[int, int]]] = []
        self.nodes: list[tuple[int, int, int]] = []
        self.leaves: list[list[int]] = []
        self.starts: list[int] = []
        self.first = 0

    def add_labels(self, labels: list[tuple[tuple[Any, ...], Launch | None, tuple[int, int] | None]]) -> None:
        self.first = len(self.labels)
        for label, launch, tile in labels:
            number = NONE if launch is None else self.templates.setdefault(launch, len(self.templates))
            self.labels.append((number, label[-2], label[-1], tile or (0, 0)))

    def add_tree(self, model: Any) -> None:
        self.starts.append(len(self.nodes))
        self._add_node(model.tree_, model.classes_, 0)

    def _add_node(self, tree: Any, classes: Any, node: int) -> None:
        at = len(self.nodes)
        if tree.children_left[node] < 0:
            counts = tree.value[node][0]
            order = [int(i) for i in np.argsort(-counts, kind="stable")[: 2 * MOST] if counts[i] > 0]
            labels = [self.first + int(classes[i]) for i in order]
            labels = [label for label in labels if self.labels[label][0] != NONE][:MOST]
            self.nodes.append((LEAF, len(self.leaves), 0))
            self.leaves.append(labels + [NONE] * (MOST - len(labels)))
            return
        self.nodes.append((int(tree.feature[node]), int(np.floor(tree.threshold[node])), 0))
        self._add_node(tree, classes, tree.children_left[node])
        self.nodes[at] = (*self.nodes[at][:2], len(self.nodes) - at)
        self._add_node(tree, classes, tree.children_right[node])

    def write(self, kinds: list[GemmKind], meta: dict[str, Any]) -> None:
        names = sorted({launch.name for launch in self.templates})
        told = [
            (names.index(x.name), x.grid, x.block, int(x.reduced), x.reduction, x.custom, x.workspace) for x in self.templates
        ]
        nodes = np.array(self.nodes)
        labels = np.array([(a, min(b, NONE), c) for a, b, c, _ in self.labels])
        about = {**meta, "kinds": [[k.fmt, k.out, k.accumulate, k.fast] for k in kinds], "names": names, "templates": told}
        np.savez_compressed(
            choices_path(GPU, LIBRARY), meta=json.dumps(about), start=np.array(self.starts, np.int32), feature=nodes[:, 0].astype(np.uint8),
            value=nodes[:, 1].astype(np.int32), right=nodes[:, 2].astype(np.uint16), leaf=np.array(self.leaves, np.uint16),
            template=labels[:, 0].astype(np.uint16), splits=labels[:, 1].astype(np.uint16), waves=labels[:, 2].astype(np.uint16),
            tile=np.array([tile for *_, tile in self.labels], np.uint16),
        )  # fmt: skip
        choices.cache_clear()


def ranks(rows: list[dict[str, Any]]) -> dict[str, tuple[list[int], int]]:
    """Kind -> at which rank held-out calls are right, counted, and of how many; a call cut along k by tile is never right."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        call, launch = row["call"], row["launch"]
        kind = gemm_kind(call.kind)
        unit = unit_of_kind(GPU, kind)
        shape = (call.m, call.n, call.k)
        more = catalogue_launches(GPU, LIBRARY, kind, shape, call.layout, but_itself=True)
        guesses = [
            walk_key(choice.schedule, unit, call.k) for choice in ranked(GPU, LIBRARY, kind, shape, call.layout, unit, more)
        ]
        truth = None if asks_for_marks(launch) else walk_key(schedule_of_kernel(launch, kind, unit, call.k), unit, call.k)
        found[kind.name][guesses.index(truth) if truth in guesses else -1] += 1
    return {name: ([counts[rank] for rank in range(RANKS)], sum(counts.values())) for name, counts in found.items()}


def fit_trees(answers: str, *folders: str) -> None:
    """Trees of every kind among the answers; kernels' names are those of the surveys in the folders."""
    sys.setrecursionlimit(10_000)
    templates, table = Templates([row for folder in folders for row in plain_rows(folder)]), Table()
    with np.load(answers) as stored:
        kinds, layouts = stored["kinds"].tolist(), stored["layouts"].tolist()
        columns = {key: stored[key] for key in stored.files if key not in ("kinds", "layouts")}
    for at, kind in enumerate(kinds):
        picked = columns["kind"] == at
        fit_kind(kind, {**{key: x[picked] for key, x in columns.items()}, "layouts": layouts}, templates, table)
        print(kind, int(picked.sum()), "answers;", len(table.nodes), "nodes,", len(table.labels), "labels so far", flush=True)
    meta = {"answers": len(columns["m"]), "cublasLt": read_survey(folders[0])[0]["cublasLt"], "ranks": {}}
    table.write([gemm_kind(kind) for kind in kinds], meta)


def count_ranks(*folders: str) -> None:
    """Into the trees' record: how often each rank is right on the drawn calls of surveys."""
    held = [row for folder in folders for row in plain_rows(folder) if row["section"] in ("plain", "sgemm", "dgemm")]
    path = choices_path(GPU, LIBRARY)
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files if key != "meta"}
        meta = json.loads(str(stored["meta"]))
    meta["ranks"] = ranks(held)
    for name, (right, of) in meta["ranks"].items():
        print(name, right, "of", of, [round(sum(right[: r + 1]) / of, 3) for r in range(RANKS)])
    np.savez_compressed(path, meta=json.dumps(meta), **arrays)


if __name__ == "__main__":
    (fit_trees if sys.argv[1] == "fit" else count_ranks)(*sys.argv[2:])
