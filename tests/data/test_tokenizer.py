"""Tokenizers: every text comes back, specials are never found in a text, and the counts are the true ones."""

import json
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.codec import Codec, pieces
from scaling.data.tokenizer import SPECIALS
from tests.command_line import refuses

LESSON = "Loss falls as a power of size, while data and compute grow together.\nA model learns what it can: 1 2 3."
# Enough characters and pairs for every kind to reach the vocabulary asked of it, or to fall short of it.
MANY = [f"line {number} of many" for number in range(50)]
LINES = [LESSON, "def f(x):\n    return x + 1\n", "wörter, слова, 言葉 – “words” 🙂\n", *MANY]
KINDS = {
    "Byte": {},
    "ByteBPE": {"vocabulary": 300},
    "BPE": {"vocabulary": 200, "alphabet": 100},
    "WordPiece": {"vocabulary": 200, "alphabet": 100},
    "Unigram": {"vocabulary": 150},
    "Word": {"vocabulary": 40},
    "Character": {"vocabulary": 60},
}


@cache
def codec(kind):
    return Codec(build("tokenizer", {"kind": kind, **KINDS[kind]}).fit(iter(LINES * 5)))


def ids(kind, text):
    return list(codec(kind).encode([text])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_counts_its_ids_takes_specials_for_text_and_is_the_same_when_saved(kind, tmp_path):
    held = codec(kind)
    assert held.size == len(held.tokenizer.get_vocab(with_added_tokens=True)) == len(held.words)
    assert held.size <= KINDS[kind].get("vocabulary", 260)
    assert sorted(held.specials) == ["bos", "eos", "pad", "unk"]
    assert len(set(held.specials.values())) == 4
    for special in SPECIALS:
        found = set(ids(kind, f"a{special} {special}")) - {held.specials["unk"]}
        assert not found & set(held.specials.values())
    file = tmp_path / "tokenizer.json"
    held.save(file)
    for other in (Codec.load(file), Codec.of(build("tokenizer", {"kind": "File", "path": str(file)}))):
        assert other.sha256 == held.sha256  # a corpus for which a run's tokenizer is named has the run's tokens
        assert other.encode([LESSON]) == held.encode([LESSON])
    file.write_text(json.dumps(json.loads(file.read_text())))  # as published files are spelled
    assert Codec.load(file).is_same(Codec.of(build("tokenizer", {"kind": "File", "path": str(file)})))
    assert Codec.load(file).is_same(codec("Byte")) == (kind == "Byte")


@settings(max_examples=40)
@given(text=st.text())
def test_bytes_lose_nothing(text):
    for kind in ("Byte", "ByteBPE"):
        assert codec(kind).decode(ids(kind, text)) == text
        assert codec(kind).specials["unk"] not in ids(kind, text)


@settings(max_examples=10)
@given(lines=st.lists(st.sampled_from([*LINES[:20], "", "   ", "\tx"]), min_size=5, max_size=60))
def test_pieces_of_a_long_text_encode_as_the_whole(lines):
    text = "\n".join(lines)
    cut = list(pieces(text, limit=150))
    assert "".join(cut) == text
    for kind in KINDS:
        assert [token for piece in cut for token in ids(kind, piece)] == ids(kind, text)


def test_words_and_characters_that_are_not_known_are_one_token():
    assert codec("Word").decode(ids("Word", "line of zebras, many")).split() == ["line", "of", "<unk>", ",", "many"]
    assert len(ids("Character", "of many\n")) == 8
    assert codec("Character").decode(ids("Character", "of  many\n")) == "of  many\n"
    assert ids("Character", "Ψ") == [codec("Character").specials["unk"]]


def test_the_specials_of_published_tokenizers_are_known():
    def of(*tokens):
        vocabulary = {token: index for index, token in enumerate([*tokens, "a"])}
        return Codec(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="a"))).specials

    assert of("<pad>", "</s>", "<unk>", "<extra_id_0>") == {"pad": 0, "eos": 1, "unk": 2, "sentinel_0": 3}
    bert = {"pad": 0, "unk": 1, "cls": 2, "bos": 2, "sep": 3, "eos": 3, "mask": 4}
    assert of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") == bert
    assert of("<|endoftext|>") == {"eos": 0}
    refuses("no token that ends a document", of, "<pad>")


def test_a_vocabulary_too_small_and_a_broken_file(tmp_path):
    with pytest.raises(ScalingError, match="vocabulary=259: too small: specials and alphabet take 260"):
        build("tokenizer", {"kind": "ByteBPE", "vocabulary": 259}).fit(iter(()))
    with pytest.raises(ScalingError, match="take 1004; raise it, or lower alphabet=1000"):
        build("tokenizer", {"kind": "BPE", "vocabulary": 300}).fit(iter(()))
    (tmp_path / "none.json").write_text("{}")
    with pytest.raises(ScalingError, match="this is not a tokenizer"):
        build("tokenizer", {"kind": "File", "path": str(tmp_path / "none.json")}).fit(iter(()))
