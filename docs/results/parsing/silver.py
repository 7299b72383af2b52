"""Silver trees: what a grammar that is counted in gold trees makes of tagged text.

    python silver.py train.mrg.gz eng.train silver.mrg [--sentences 8000] [--check dev.mrg.gz]

The text is in the columns of CoNLL-2003, of which word and tag are read. The grammar is a PCFG over tags: each label
knows its parent (Johnson 1998), the inner nodes of a constituent of many children the last child alone (Klein &
Manning 2003). The likeliest tree is found by CKY. `--check` prints the F1 of the grammar's own trees, under gold tags.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from scaling.data.rows import opened
from scaling.metrics import trees
from scaling.metrics.trees import BracketF1, Tree

TAGS = {'"': "''", "(": "-LRB-", ")": "-RRB-", "NN|SYM": "NN"}  # CoNLL's, where they are not the treebank's
BRACKETS = {"(": "-LRB-", ")": "-RRB-"}
ROOT = "ROOT"


class Rules(NamedTuple):
    """`parent` → `left` (`right`), sorted by parent; a rule of one child has no right."""

    parent: np.ndarray
    left: np.ndarray
    right: np.ndarray
    log_p: np.ndarray
    starts: np.ndarray  # where the rules of the next parent begin

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, float]]) -> Rules:
        parent, left, right, log_p = map(np.array, zip(*sorted(rows), strict=True))
        starts = np.flatnonzero(np.diff(parent, prepend=-1))
        return cls(parent, left, right, log_p.astype(np.float32), starts)

    def best(self, scores: np.ndarray, into: np.ndarray) -> None:
        """Raise `into`, [spans states], by the best of each parent's rules, whose scores are [spans rules]."""
        parents = self.parent[self.starts]
        into[:, parents] = np.maximum(into[:, parents], np.maximum.reduceat(scores, self.starts, 1))


class Grammar:
    def __init__(self, gold: Iterable[Tree]):
        counts: Counter[tuple[str, ...]] = Counter()
        for tree in gold:
            counts[ROOT, f"{tree.label}^{ROOT}"] += 1
            counts.update(_rules(tree, ROOT))
        totals: Counter[str] = Counter()
        for rule, count in counts.items():
            totals[rule[0]] += count
        self.names = sorted({name for rule in counts for name in rule})
        self.number = {name: place for place, name in enumerate(self.names)}
        known = {rule: math.log(count / totals[rule[0]]) for rule, count in counts.items()}
        self.binary = Rules.of(
            (self.number[rule[0]], self.number[rule[1]], self.number[rule[2]], p)
            for rule, p in known.items()
            if len(rule) == 3
        )
        self.chains = _chains({rule: p for rule, p in known.items() if len(rule) == 2})
        self.unary = Rules.of(
            (self.number[top], self.number[bottom], -1, p) for (top, bottom), (p, _) in self.chains.items()
        )
        self.of_tag: dict[str, list[int]] = {}
        for name in self.names:
            tag, parent = name.rpartition("^")[::2]
            if parent and name not in totals:
                self.of_tag.setdefault(tag, []).append(self.number[name])

    def parse(self, leaves: list[Tree]) -> Tree | None:
        """The likeliest tree over the leaves, None where the grammar has none."""
        n = len(leaves)
        chart = np.full((n, n + 1, len(self.names)), -np.inf, np.float32)
        for place, leaf in enumerate(leaves):
            chart[place, place + 1, self.of_tag.get(leaf.label, self.of_tag["NN"])] = 0
        for length in range(1, n + 1):
            begin = np.arange(n - length + 1)
            spans = chart[begin, begin + length]
            if length > 1:
                splits = begin[:, None] + np.arange(1, length)
                left = chart[begin[:, None], splits][..., self.binary.left]
                right = chart[splits, begin[:, None] + length][..., self.binary.right]
                self.binary.best((left + right).max(1) + self.binary.log_p, spans)
            self.unary.best(spans[:, self.unary.left] + self.unary.log_p, spans)
            chart[begin, begin + length] = spans
        if not np.isfinite(chart[0, n, self.number[ROOT]]):
            return None
        (tree,) = self._trace(chart, leaves, 0, n, self.number[ROOT])
        return trees.plain(tree)

    def _trace(self, chart: np.ndarray, leaves: list[Tree], begin: int, end: int, state: int) -> list[Tree]:
        """What stands under a state: one tree, or the children that it gathers of a constituent above."""
        name = self.names[state]
        children = self._children(chart, leaves, begin, end, state)
        if "|" in name:
            return children
        label, _, _ = name.rpartition("^")
        if not children:
            return [leaves[begin]]
        return children if state == self.number[ROOT] else [Tree(label, children)]

    def _children(self, chart: np.ndarray, leaves: list[Tree], begin: int, end: int, state: int) -> list[Tree]:
        score = chart[begin, end, state]
        rules = np.flatnonzero(self.binary.parent == state)
        for split in range(begin + 1, end):
            left, right = self.binary.left[rules], self.binary.right[rules]
            total = chart[begin, split, left] + chart[split, end, right] + self.binary.log_p[rules]
            best = int(total.argmax()) if len(rules) else 0
            if len(rules) and np.isclose(total[best], score, rtol=1e-5, atol=1e-5):
                parts = ((begin, split, left[best]), (split, end, right[best]))
                return [child for part in parts for child in self._trace(chart, leaves, *part)]
        rules = np.flatnonzero(self.unary.parent == state)
        if not len(rules):
            return []
        total = chart[begin, end, self.unary.left[rules]] + self.unary.log_p[rules]
        bottom = int(self.unary.left[rules[total.argmax()]])
        under = self._trace(chart, leaves, begin, end, bottom)
        for between in reversed(self.chains[self.names[state], self.names[bottom]][1]):
            under = [Tree(between.rpartition("^")[0], under)]
        return under


def _rules(tree: Tree, parent: str) -> Iterator[tuple[str, ...]]:
    """The rules by which a tree is built, of one or two children each."""
    own = f"{tree.label}^{parent}"
    names = [f"{child.label}^{tree.label}" for child in tree.children]
    above = own
    for place, name in enumerate(names[:-2]):
        inner = f"{tree.label}|{tree.children[place].label}"
        yield above, name, inner
        above = inner
    if names:
        yield (above, *names[-2:])
    for child in tree.children:
        yield from _rules(child, tree.label)


def _chains(single: dict[tuple[str, ...], float]) -> dict[tuple[str, str], tuple[float, tuple[str, ...]]]:
    """The likeliest chain of rules of one child from a label to another, and the labels between them."""
    found = {(rule[0], rule[1]): (p, ()) for rule, p in single.items() if rule[0] != rule[1]}
    frontier = dict(found)
    while frontier:
        longer: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}
        for (top, middle), (p, between) in frontier.items():
            for (above, bottom), (q, _) in ((pair, found[pair]) for pair in found if pair[0] == middle):
                chain = (p + q, (*between, above))
                known = max(found.get((top, bottom), (-math.inf,)), longer.get((top, bottom), (-math.inf,)))
                if top != bottom and bottom not in between and chain[0] > known[0]:
                    longer[top, bottom] = chain
        found |= longer
        frontier = longer
    return found


def tagged(file: Path) -> Iterator[list[Tree]]:
    """The sentences of a text in columns, word and tag first."""
    sentence: list[Tree] = []
    with opened(file) as lines:
        for line in lines:
            word, tag = ([*line.decode().split(), "", ""])[:2]
            if word and tag != "-X-":
                sentence.append(Tree(TAGS.get(tag, tag), word=BRACKETS.get(word, word)))
            elif sentence:
                yield sentence
                sentence = []
    if sentence:
        yield sentence


def treebank(file: Path) -> list[Tree]:
    with opened(file) as lines:
        found = trees.read((line.decode() for line in lines), file)
        return [tree for tree in map(trees.plain, found) if tree is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gold", "text", "silver"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--sentences", type=int, default=8000)
    parser.add_argument("--check", type=Path)
    arguments = parser.parse_args()
    grammar = Grammar(treebank(arguments.gold))
    print(f"{len(grammar.names)} labels, {len(grammar.binary.parent)} rules of two children")
    if arguments.check:
        gold = [tree for tree in treebank(arguments.check) if len(tree.words()) <= 40]
        own = [grammar.parse(tree.words()) for tree in gold]
        metric = BracketF1()
        rows = metric.rows([trees.linear(tree) if tree else "" for tree in own], [str(tree) for tree in gold])
        values = metric.values(rows.sum(0, keepdims=True))
        print(f"F1 {values['f1'][0]:.3f} on {len(gold)} trees of at most 40 words; {own.count(None)} without a tree")
    wanted, written, failed = arguments.sentences, 0, 0
    with arguments.silver.open("w") as file:
        for leaves in tagged(arguments.text):
            if not 5 <= len(leaves) <= 30 or leaves[-1].label != ".":
                continue
            tree = grammar.parse(leaves)
            failed += tree is None
            if tree is not None:
                file.write(f"({tree})\n")
                written += 1
            if written == wanted:
                break
    print(f"{written} silver trees; {failed} sentences have none")


if __name__ == "__main__":
    main()
