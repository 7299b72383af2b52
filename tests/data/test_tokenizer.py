"""Tokenizers: every text comes back, specials are never found in a text, and the counts are the true ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.codec import Codec, pieces
from scaling.data.tokenizer import SPECIALS

LESSON = "Loss falls as a power of size, while data and compute grow together.\nA model learns what it can: 1 2 3."
# Enough characters and pairs for every kind to reach the vocabulary asked of it, or to fall short of it.
MANY = [f"line {number} of many" for number in range(50)]
LINES = [LESSON, "def f(x):\n    return x + 1\n", "wörter, слова, 言葉 – “words” 🙂\n", *MANY]
LEARNING = {
    "ByteBPE": {"vocabulary": 300},
    "BPE": {"vocabulary": 200, "alphabet": 100},
    "WordPiece": {"vocabulary": 200, "alphabet": 100},
    "Unigram": {"vocabulary": 150},
    "Word": {"vocabulary": 40},
    "Character": {"vocabulary": 60},
}


@cache
def codec(kind: str) -> Codec:
    return Codec(build("tokenizer", {"kind": kind, **LEARNING.get(kind, {})}).fit(iter(LINES * 5)))


def ids(kind: str, text: str) -> list[int]:
    return list(codec(kind).encode([text])[0])


EVERY = ["Byte", *LEARNING]


@pytest.mark.parametrize("kind", EVERY)
def test_the_vocabulary_is_counted_as_it_is(kind: str) -> None:
    held = codec(kind)
    assert held.size == len(held.tokenizer.get_vocab(with_added_tokens=True))
    assert held.size <= LEARNING.get(kind, {}).get("vocabulary", 260)
    assert sorted(held.specials) == ["bos", "eos", "pad", "unk"]
    assert len(set(held.specials.values())) == 4
    assert held.words.shape == (held.size,)


@pytest.mark.parametrize("kind", ["Byte", "ByteBPE"])
@settings(max_examples=40)
@given(text=st.text())
def test_bytes_lose_nothing(kind: str, text: str) -> None:
    assert codec(kind).decode(ids(kind, text)) == text
    assert codec(kind).specials["unk"] not in ids(kind, text)


def test_words_and_characters_that_are_not_known_are_one_token() -> None:
    unknown = codec("Word").specials["unk"]
    assert codec("Word").decode(ids("Word", "line 7 of zebras, many")).split() == [
        "line", *(["7"] if unknown not in ids("Word", "7") else ["<unk>"]), "of", "<unk>", ",", "many",
    ]  # fmt: skip
    assert len(ids("Character", "of many\n")) == 8
    assert codec("Character").decode(ids("Character", "of  many\n")) == "of  many\n"
    assert ids("Character", "Ψ") == [codec("Character").specials["unk"]]
    small = Codec(build("tokenizer", {"kind": "Word", "vocabulary": 20, "case": False}).fit(iter(["A a A b"])))
    assert small.decode(ids_of := list(small.encode(["a B"])[0])) == "a b"
    assert small.specials["unk"] not in ids_of


@pytest.mark.parametrize("kind", EVERY)
def test_specials_spelled_out_in_a_text_are_text(kind: str) -> None:
    for special in SPECIALS:
        found = set(ids(kind, f"a{special} {special}")) - {codec(kind).specials["unk"]}
        assert not found & set(codec(kind).specials.values())


@pytest.mark.parametrize("kind", EVERY)
@settings(max_examples=20)
@given(data=st.data())
def test_pieces_of_a_long_text_encode_as_the_whole(kind: str, data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from([*LINES[:20], "", "   ", "\tx"]), min_size=5, max_size=60))
    text = "\n".join(lines)
    cut = list(pieces(text, limit=150))
    assert "".join(cut) == text
    assert [token for piece in cut for token in ids(kind, piece)] == ids(kind, text)


@pytest.mark.parametrize("kind", EVERY)
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    codec(kind).save(file)
    loaded = Codec.load(file)
    assert loaded.sha256 == codec(kind).sha256
    assert loaded.encode([LESSON]) == codec(kind).encode([LESSON])
    named, again = (Codec(build("tokenizer", {"kind": "File", "path": str(file)}).fit(iter(()))) for _ in range(2))
    assert named.sha256 == again.sha256
    assert named.encode([LESSON]) == loaded.encode([LESSON])


def test_the_specials_of_published_tokenizers_are_known() -> None:
    def of(*tokens: str) -> dict[str, int]:
        vocabulary = {token: index for index, token in enumerate([*tokens, "a"])}
        return Codec(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))).specials

    assert of("<pad>", "</s>", "<unk>", "<extra_id_0>") == {"pad": 0, "eos": 1, "unk": 2, "sentinel_0": 3}
    assert of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") == {
        "pad": 0,
        "unk": 1,
        "cls": 2,
        "bos": 2,
        "sep": 3,
        "eos": 3,
        "mask": 4,
    }
    assert of("<|endoftext|>") == {"eos": 0}


# --- bad input ---


def nothing() -> Iterator[str]:
    return iter(())


def test_a_vocabulary_too_small() -> None:
    with pytest.raises(ScalingError, match="vocabulary=259: too small: specials and alphabet take 260"):
        build("tokenizer", {"kind": "ByteBPE", "vocabulary": 259}).fit(nothing())


def test_a_missing_or_broken_file(tmp_path: Path) -> None:
    line = {"kind": "File", "path": str(tmp_path / "none.json")}
    with pytest.raises(ScalingError, match="there is no such file"):
        build("tokenizer", line)
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(ScalingError, match="this is no tokenizer"):
        build("tokenizer", line).fit(nothing())


def test_a_tokenizer_that_ends_nothing() -> None:
    with pytest.raises(ScalingError, match="no token that ends a document"):
        Codec(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")))
