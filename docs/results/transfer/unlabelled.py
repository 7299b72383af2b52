"""10,000 sentences of the training half of the movie reviews, for a student to read with its teacher's labels."""

import gzip
import json
import random
from pathlib import Path

with gzip.open("tasks/movie_reviews/train.jsonl.gz", "rt") as file:
    lines = [line.split() for review in file for line in json.loads(review)["text"].splitlines()]
sentences = sorted({" ".join(words) for words in lines if 6 <= len(words) <= 40})
random.Random(0).shuffle(sentences)
Path("unlabelled.tsv").write_text("".join(f"{sentence}\t\n" for sentence in sentences[:10000]))
