"""Write documents of WikiSum's layout from this machine's Python sources, in `wikisum/` of the folder it is run in.

A document is a class: the title is its name in words, the lead is the first paragraph of its docstring, and the
paragraphs are the further ones and those of its methods' docstrings, ranked by tf-idf against the title (Liu et al.
2018, section 3.2). Whole files are held out. Texts are those of the machine, so that another one has others.
"""

import ast
import hashlib
import json
import math
import re
import warnings
from collections import Counter
from pathlib import Path

from scaling.data.corpus import Python

LEAD, PARAGRAPHS = (30, 240), (200, 6000)  # the least and the largest number of characters
HELD_OUT = 0.1  # of the files
LIMIT = 64_000_000  # bytes of sources, as of the corpus `python`


def paragraphs(docstring: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (docstring or "").strip().split("\n\n") if part.strip()]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


documents = {}
for source in Python(limit=LIMIT).snapshot(Path("data")).documents():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source.text)
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        docstrings = [
            [ast.get_docstring(node), *(ast.get_docstring(m) for m in node.body if isinstance(m, ast.FunctionDef))]
            for node in classes
        ]
    except (SyntaxError, ValueError, RecursionError):
        continue
    held_out = int.from_bytes(hashlib.blake2b(source.text.encode(), digest_size=8).digest(), "big") < HELD_OUT * 2**64
    for node, (own, *of_methods) in zip(classes, docstrings, strict=True):
        lead, *rest = paragraphs(own) or [""]
        rest += [part for docstring in of_methods for part in paragraphs(docstring)]
        rest = list(dict.fromkeys(part for part in rest if part != lead))
        title = " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", node.name)).lower()
        text = f"{lead}{''.join(rest)}"
        if LEAD[0] <= len(lead) <= LEAD[1] and PARAGRAPHS[0] <= sum(map(len, rest)) and title and text.isascii():
            documents.setdefault(lead, (title, rest, held_out))

frequency = Counter(word for _, rest, _ in documents.values() for part in rest for word in set(words(part)))
count = sum(frequency.values())


def relevance(part: str, title: set[str]) -> float:
    inside = Counter(words(part))
    return sum(inside[word] * math.log(count / frequency[word]) for word in title if inside[word])


splits: dict[bool, list[str]] = {False: [], True: []}
for lead, (title, rest, held_out) in documents.items():
    named = set(words(title))
    ranked = "\n".join(sorted(rest, key=lambda part: -relevance(part, named)))[: PARAGRAPHS[1]]
    splits[held_out].append(json.dumps({"title": title, "paragraphs": ranked, "lead": lead}) + "\n")

folder = Path("wikisum")
folder.mkdir(exist_ok=True)
for held_out, name in ((False, "train"), (True, "test")):
    (folder / f"{name}.jsonl").write_text("".join(splits[held_out]))
    print(f"{len(splits[held_out]):,} documents in {folder / name}.jsonl")
