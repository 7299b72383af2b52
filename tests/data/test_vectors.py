"""Word vectors in files: every format, and what is wrong with a file by its line."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.data.vectors import read, table

WORDS = {"law": [1, 2, 0.5], "the": [-1, 0, 3]}
LINES = b"law 1 2 0.5\nthe -1 0 3\n"
PACKED = [word.encode() + b" " + struct.pack("<3f", *vector) for word, vector in WORDS.items()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", LINES),
        ("fast.vec", b"2 3\n" + LINES.replace(b"\n", b" \n")),
        ("word2vec.txt.gz", gzip.compress(b"2 3\n" + LINES)),
        ("plain.bin", b"2 3\n" + b"".join(PACKED)),
        ("lines.bin", b"2 3\n" + b"\n".join(PACKED) + b"\n"),
    ],
)
def test_every_format_has_the_same_vectors(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    found = read(tmp_path / name, 3, lambda word: True)
    assert {word: vector.tolist() for word, vector in found.items()} == WORDS
    assert list(read(tmp_path / name, 3, {"the"}.__contains__)) == ["the"]


@pytest.mark.parametrize(
    ("name", "content", "line", "what"),
    [
        ("a.txt", b"law 1 2\nthe 3 4\n", 1, "have 2 numbers, and the model's 3; take size.width=2"),
        ("a.bin", b"2 4\nlaw ", 1, "have 4 numbers"),
        ("a.txt", b"law 1 2 3\nthe 4 5\n", 2, "have 2 numbers"),
        ("a.txt", b"law 1 2 3\nthe " + b"9" * 5000 + b" 4 5\n", 2, "no finite number"),
        ("a.txt", b"law 1 2 3\n\xff 4 3 5\n", 2, "not UTF-8"),
        ("a.bin", b"law 1 2 3\n", 1, "no binary file of word2vec"),
        ("a.bin", b"2 3\nlaw \0\0\0\0", None, "ends at word 1 of 2"),
        ("a.bin", b"1 3\nlaw " + b"\0\0\xc0\x7f" * 3, None, "no finite number"),
        ("a.bin", (793712314).to_bytes(4, "little") + b"abc", None, "take the .vec file"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(
    name: str, content: bytes, line: int | None, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScalingError, match=what) as caught:
        read(tmp_path / name, 3, lambda word: True)
    assert (caught.value.file, caught.value.line) == (tmp_path / name, line)


def test_rows_are_the_words_and_else_drawn_alike(tmp_path: Path) -> None:
    many = np.random.default_rng(0).normal(0.3, 2, (500, 3)).astype(np.float32)
    lines = [f"w{number} {' '.join(map(str, vector))}" for number, vector in enumerate(many)]
    (tmp_path / "many.vec").write_text("\n".join(lines) + "\n")
    tokens = ("", "w7", "W8", "other", *(f"none{number}" for number in range(400)), *(f"w{n}" for n in range(9, 500)))
    covered = table(tmp_path / "many.vec", tokens, 3)
    assert covered.covered == 493
    np.testing.assert_allclose(covered.table[1:3], many[7:9], rtol=1e-5)
    assert covered.table[3:404].mean() == pytest.approx(0.3, abs=0.2)
    assert covered.table[3:404].std() == pytest.approx(2, abs=0.2)
    with pytest.raises(ScalingError, match="no token of the run is a word of it"):
        table(tmp_path / "many.vec", ("a", "b"), 3)
