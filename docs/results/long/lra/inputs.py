"""Write what the tables of this folder read, in `inputs/` of the folder it is run in: `python inputs.py REVIEWS`.

REVIEWS holds the files of movie_reviews (Pang and Lee 2004), train.jsonl.gz and test.jsonl.gz, of rows with `text` and
`label`. Of their 2,000 texts, in the order of their hashes, 600 become the validation split: the 200 of the test file
decide too little. Self-pretraining reads the texts of the training split alone, without their labels: reviews as
documents, lists as tokens.
"""

import gzip
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from scaling.data.synthetic.list_ops import ListOps

HELD_OUT = 600
LISTS = {"examples": 40_000, "held_out": 2000, "shortest": 7, "longest": 48}  # as `data` in list_ops.yaml

reviews, folder = Path(sys.argv[1]), Path("inputs")
folder.mkdir(exist_ok=True)
rows = []
for name in ("train", "test"):
    with gzip.open(reviews / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows += map(json.loads, lines)
rows.sort(key=lambda row: hashlib.sha256(row["text"].encode()).digest())


def write(name: str, rows: list[dict[str, str]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


write("reviews_validation.jsonl", rows[:HELD_OUT])
write("reviews_train.jsonl", rows[HELD_OUT:])
write("reviews_unlabelled.jsonl", [{"text": row["text"]} for row in rows[HELD_OUT:]])

for split in ("train", "validation"):
    source = ListOps(**LISTS).open(split, folder)
    texts = [np.append(source.items[number].parts[0], source.specials["eos"]) for number in range(len(source.items))]
    np.save(folder / f"lists_{split}.npy", np.concatenate(texts).astype(np.uint8))
