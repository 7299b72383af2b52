"""Where parses go wrong: `python words.py test.mrg.gz PREDICTIONS.jsonl`, as `scaling predict` writes them.

A sequence says nothing of which word it is at. One word too many or too few moves all brackets behind it, and the score
counts them as wrong; so F1 is printed of the sentences whose sequence has their number of words, and of the others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scaling.data.rows import opened
from scaling.metrics import trees
from scaling.metrics.trees import BracketF1


def main() -> None:
    file, predictions = map(Path, sys.argv[1:])
    with opened(file) as lines:
        read = trees.read((line.decode() for line in lines), file)
        gold = [(tree, len(plain.words())) for tree in read if (plain := trees.plain(tree)) is not None]
    written = [json.loads(line)["prediction"] or "" for line in predictions.read_text().splitlines()]
    right = [_words(text) == words for text, (_, words) in zip(written, gold, strict=True)]
    for title, kept in (("all", [True] * len(gold)), ("as many words", right), ("others", [not one for one in right])):
        pairs = [(text, [str(tree)]) for text, (tree, _), keep in zip(written, gold, kept, strict=True) if keep]
        score = BracketF1().score(*map(list, zip(*pairs, strict=True)))
        print(f"{title}: {len(pairs)} sentences, F1 {score['f1']:.3f}, complete {score['complete']:.3f}")


def _words(text: str) -> int:
    return sum(token[0] not in "()" for token in text.split())


if __name__ == "__main__":
    main()
