"""Constituency trees: as treebanks bracket them, and as the sequence that a model writes.

`(S (NP (DT The) (NN cat)) (VP (VBZ sits)))` is a tree. Its sequence is `(S (NP XX XX )NP (VP XX )VP )S`: a token opens
each constituent, one closes it with its label, and every word is XX. (Vinyals et al. 2015, section 2.2)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.base.errors import refuse
from scaling.metrics.metric import PartsF1
from scaling.metrics.text import texts

WORD = "XX"
TRACE = "-NONE-"
ROOTS = ("", "TOP", "ROOT", "S1")  # what treebanks put around a sentence
_TOKEN = re.compile(r"\(\s*([^\s()]*)|\)|[^\s()]+")  # a bracket with its label, one that closes, a word
DEEPEST = 200  # constituents within one another


@dataclass
class Tree:
    """A constituent of children, or a word under its part of speech."""

    label: str
    children: list[Tree] = field(default_factory=list)
    word: str | None = None

    def words(self) -> list[Tree]:
        """The leaves, in their order."""
        if self.word is not None:
            return [self]
        return [leaf for child in self.children for leaf in child.words()]

    def __str__(self) -> str:
        if self.word is not None:
            return f"({self.label} {self.word})"
        return f"({' '.join([self.label, *map(str, self.children)])})"


def read(lines: Iterable[str], file: str | Path | None = None) -> Iterator[Tree]:
    """The trees of a bracketed text; each may go over several lines. Words without a part of speech are refused."""

    def check(is_wrong: object, what: str, line: int, fix: str) -> None:
        place: dict[str, Any] = {"key": "label"} if file is None else {"file": file, "line": line}
        refuse(is_wrong, what, fix, **place)

    stack: list[Tree] = []
    begun = 0
    for number, line in enumerate(lines, 1):
        for token in _TOKEN.finditer(line):
            if token[1] is not None:
                begun = begun if stack else number
                check(len(stack) > DEEPEST, f"a tree is more than {DEEPEST} brackets deep", number, "leave it out")
                stack.append(Tree(token[1]))
            elif token[0] == ")":
                check(not stack, "a bracket closes no tree", number, "remove it, or open the tree before it")
                done = stack.pop()
                is_empty = done.word is None and not done.children
                check(is_empty, "a bracket holds neither a word nor a constituent", number, "remove it")
                if stack:
                    stack[-1].children.append(done)
                else:
                    yield done
            else:
                is_word = stack and stack[-1].label and not stack[-1].children and stack[-1].word is None
                fix = "write (TAG word), and -LRB- or -RRB- for a bracket that is a word"
                check(not is_word, f"{token[0]!r} is outside of (TAG word)", number, fix)
                stack[-1].word = token[0]
    left = f"{len(stack)} of its brackets are open at the end of the file"
    check(stack, f"the tree that begins here does not close: {left}", begun, "close it")


def parse(text: str) -> Tree:
    """The one tree of a text."""
    trees = list(read([text]))
    refuse(len(trees) != 1, f"it holds {len(trees)} trees", "write one tree", key="label", value=text)
    return trees[0]


def plain(tree: Tree) -> Tree | None:
    """The tree that is learned: without traces, constituents without a word, functions (NP-SBJ is NP) and the bracket
    around the sentence; None where no word is left.
    """
    if tree.word is not None:
        return None if tree.label == TRACE else tree
    children = [child for child in map(plain, tree.children) if child is not None]
    if not children:
        return None
    if tree.label in ROOTS and len(children) == 1 and children[0].word is None:
        return children[0]
    return Tree(without_function(tree.label) or "S", children)


def without_function(label: str) -> str:
    """NP of NP-SBJ and NP=2."""
    return re.split(r"(?<=.)[-=|]", label, maxsplit=1)[0]


def linear(tree: Tree, *, tags: bool = False) -> str:
    """The sequence of a tree, with each word's part of speech in the place of XX where `tags` are to be learned too."""
    if tree.word is not None:
        return tree.label if tags else WORD
    return " ".join([f"({tree.label}", *(linear(child, tags=tags) for child in tree.children), f"){tree.label}"])


def repaired(sequence: str, words: Sequence[tuple[str, str]]) -> Tree:
    """The tree of a sequence that a model wrote, over (tag, word) as they are, whatever it wrote.

    A bracket that closes nothing is left out, as is one that opens within DEEPEST others, and one that closes a
    constituent further up closes those within it.
    Words that are too many are left out; those that are missing are put into the outermost constituent. What is still
    open is closed at the end, what holds no word is left out, and several trees go under one S.
    """
    root = Tree("")
    stack, left = [root], list(words)
    for token in sequence.split():
        if token.startswith("(") and len(token) > 1:
            if len(stack) <= DEEPEST:
                stack.append(Tree(token[1:]))
                stack[-2].children.append(stack[-1])
        elif token.startswith(")"):
            names = [tree.label for tree in stack[1:]]
            if token[1:] in names:
                del stack[len(names) - names[::-1].index(token[1:]) :]
        elif left:
            tag, word = left.pop(0)
            stack[-1].children.append(Tree(tag, word=word))
    top = root.children[0] if len(root.children) == 1 and root.children[0].word is None else root
    top.children += [Tree(tag, word=word) for tag, word in left]
    return plain(root) or Tree("S")


DELETED = frozenset([TRACE, ",", ":", "``", "''", "."])  # tags whose words EVALB takes out (COLLINS.prm)
EQUAL = {"PRT": "ADVP"}


@dataclass(frozen=True, kw_only=True)
class BracketF1(PartsF1):
    """f1 of labelled brackets, a label and the words that it spans: 2PR / (P + R) over all trees, as EVALB computes it
    with COLLINS.prm. (Black et al. 1991; Sekine & Collins 1997)

    The bracket around a sentence, traces, empty constituents and punctuation do not count, functions are cut off labels
    (NP-SBJ is NP), and PRT is ADVP. A prediction is a tree's sequence (`scaling.metrics.trees`), repaired where it is
    unbalanced; it takes words and tags from the reference, whose last text is the tree in brackets. `complete` is the
    fraction of trees without an error.
    """

    answers = ("text",)
    ratios = {"complete": (3, 4)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        real = parse(texts(reference)[-1])
        words = [(leaf.label, leaf.word or "") for leaf in real.words() if leaf.label != TRACE]
        predicted, right = brackets(repaired(prediction or "", words)), brackets(real)
        return (predicted & right).total(), predicted.total(), right.total(), predicted == right, 1


def brackets(tree: Tree) -> Counter[tuple[str, int, int]]:
    """(label, first word, word after the last) of each constituent that counts, words numbered as EVALB leaves them."""
    counts: Counter[tuple[str, int, int]] = Counter()

    def walk(node: Tree, begin: int) -> int:
        if node.word is not None:
            return begin + (node.label not in DELETED)
        end = begin
        for child in node.children:
            end = walk(child, end)
        label = without_function(node.label)
        if end > begin and label not in ROOTS:
            counts[EQUAL.get(label, label), begin, end] += 1
        return end

    walk(tree, 0)
    return counts
