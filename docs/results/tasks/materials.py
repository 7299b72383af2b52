"""The text and the tasks of these tables that are made: `python materials.py`, in the folder of the tables.

facts.jsonl is a text about people who do not exist. Each has a home and a trade, one of eight, which are in no other
file: facts_train.jsonl asks about half of the people, facts_test.jsonl about the others. pairs_*.jsonl are sentences of
a synthetic language and their translations as words of letters: the drawn one to train on, the best one to test by.
english_held_out.jsonl is a fiftieth of the English documents, and english_all.jsonl the others, in an order that is
drawn, so that a limit takes some of everything.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np

from scaling.data.synthetic.language import SyntheticPairs

PEOPLE, DOCUMENTS = 128, 60_000
HOMES = ("Oslan", "Perith", "Tumar", "Veldo", "Kirane", "Bosta", "Lumin", "Garsk")
TRADES = ("baker", "sailor", "doctor", "painter", "farmer", "teacher", "singer", "miner")
FIRST = ("Ta", "Re", "Mo", "Ki", "Bu", "Ja", "Lo", "Ve", "Su", "Zi", "Na", "Pe", "Gor", "Dal", "Fi", "Ho")
LAST = ("rok", "min", "len", "sal", "dun", "pel", "wes", "cor", "gan", "bim", "tor", "vik", "nash", "lod", "fer", "zum")
SENTENCES = ("{name} lives in {home}.", "{name} works as a {trade}.")
LANGUAGE = SyntheticPairs(
    pairs=4096, validation=256, shortest=4, longest=8, block=2, freedom=4.0, lexicon=4.0, symbols=16, order=1
)


def main() -> None:
    draw = random.Random(3401)
    names = draw.sample([a + b for a, b in product(FIRST, LAST)], PEOPLE)
    people = [{"name": name, "home": draw.choice(HOMES), "trade": draw.choice(TRADES)} for name in names]
    write("facts.jsonl", ({"text": _about(draw, draw.choice(people))} for _ in range(DOCUMENTS)))
    half = PEOPLE // 2
    for split, asked in (("train", people[:half]), ("test", people[half:])):
        write(f"facts_{split}.jsonl", (row for person in asked for row in _questions(person)))
    write("pairs_train.jsonl", _pairs("train", 4096))
    write("pairs_test.jsonl", _pairs("validation", 256))
    with gzip.open("english/documents.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    draw.shuffle(texts)
    write("english_held_out.jsonl", ({"text": text} for text in texts[::50]))
    write("english_all.jsonl", ({"text": text} for place, text in enumerate(texts) if place % 50))


def _about(draw: random.Random, person: Mapping[str, str]) -> str:
    return " ".join(sentence.format(**person) for sentence in draw.sample(SENTENCES, 2))


def _questions(person: Mapping[str, str]) -> Iterable[dict[str, str]]:
    yield {"question": f"{person['name']} lives in which town?", "answer": person["home"]}
    yield {"question": f"{person['name']} works as what?", "answer": person["trade"]}


def _pairs(split: str, count: int) -> Iterable[dict[str, str]]:
    source, rows, length = LANGUAGE.open(split, Path()), np.arange(count), LANGUAGE.longest + 1
    read = (source.read if split == "train" else source.best)(rows, length)
    for text, answer in zip(read.source, read.tokens):
        yield {"source": _words(text), "target": _words(answer)}


def _words(tokens: np.ndarray) -> str:
    return " ".join("bdfgklmn"[word // 2] + "ae"[word % 2] for word in tokens if word < LANGUAGE.symbols)


def write(path: str, rows: Iterable[Mapping[str, str]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
