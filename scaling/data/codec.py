"""Codec: text to token ids and back, by a tokenizer of `tokenizers` as it lies in a file."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from scaling.base import atomic
from scaling.base.errors import ScalingError, check_regular

PIECE = 1 << 15  # characters that are encoded at once, at least
_GROUP = 1 << 20  # characters whose encodings are held at once: they take about 50 times as many bytes

# How the specials of published tokenizers are spelled.
_SPELLINGS = {
    "pad": ("<pad>", "[PAD]", "<|padding|>"),
    "bos": ("<bos>", "<s>", "<|begin_of_text|>", "[CLS]"),
    "eos": ("<eos>", "</s>", "<|endoftext|>", "<|end_of_text|>", "[SEP]"),
    "unk": ("<unk>", "[UNK]"),
    "mask": ("<mask>", "[MASK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
}
_SPACES = ("Ġ", "Ċ", "ĉ", "▁")  # space, line break and tabulator of byte-level vocabularies; SentencePiece's space
_BOUNDARY = re.compile(r"(?<=\S)\n")


class Codec:
    """A tokenizer with its specials by name; special tokens that are spelled out in a text are text like any other."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, text: str | None = None):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self.tokenizer, self._text = tokenizer, text
        ids = tokenizer.get_vocab(with_added_tokens=True)
        self.size = max(ids.values()) + 1
        found = {name: [ids[each] for each in spellings if each in ids] for name, spellings in _SPELLINGS.items()}
        found |= {f"sentinel_{n}": [ids[f"<extra_id_{n}>"]] for n in range(self.size) if f"<extra_id_{n}>" in ids}
        self.specials = {name: several[0] for name, several in found.items() if several}
        if "eos" not in self.specials:
            raise ScalingError("the tokenizer has no token that ends a document", fix="add </s> or <|endoftext|> to it")

    @classmethod
    def of(cls, tokenizer: Any, texts: Iterable[str] = ()) -> Codec:
        """The tokenizer that a line describes, of texts where it learns."""
        return cls(tokenizer.fit(iter(texts)))

    @classmethod
    def load(cls, file: Path) -> Codec:
        try:
            check_regular(file)
            text = file.read_text(encoding="utf-8")
            return cls(tokenizers.Tokenizer.from_str(text), text)
        except ScalingError as error:
            raise error.at(file=file) from None
        except Exception as error:  # the library raises bare Exceptions
            what = "there is no such file" if not file.exists() else f"this is not a tokenizer: {error}"
            raise ScalingError(what, file=file) from error

    def save(self, file: Path) -> None:
        atomic.write(file, self.text)

    @cached_property
    def text(self) -> str:
        """The tokenizer as its file holds it. A Unigram's scores may lose their last digit when they are read, and only
        then, so a new tokenizer is written as it is once read: a `File` of it is the same tokenizer.
        """
        return self._text or tokenizers.Tokenizer.from_str(self.tokenizer.to_str()).to_str(pretty=True)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def is_same(self, other: Codec) -> bool:
        """Whether both are one tokenizer, however their files spell it."""
        return self.tokenizer.to_str() == other.tokenizer.to_str()

    @property
    def dtype(self) -> np.dtype:
        """The smallest type that the store knows and the vocabulary fits."""
        return np.dtype("<u2" if self.size <= 1 << 16 else "<u4")

    def encode(self, texts: Sequence[str]) -> list[array]:
        """The ids of each text, without any specials; in groups, because encodings are far larger than ids."""
        ids = [array(self.dtype.char) for _ in texts]
        cut = [(of_text, piece) for of_text, text in zip(ids, texts) for piece in pieces(text)]
        ends = accumulate(len(piece) for _, piece in cut)
        for _, group in groupby(zip(cut, ends), key=lambda each: each[1] // _GROUP):
            members = [member for member, _ in group]
            for (of_text, _), encoding in zip(members, self.encodings([piece for _, piece in members])):
                of_text.extend(encoding.ids)
        return ids

    def encodings(self, texts: Sequence[str], places: bool = False) -> list[tokenizers.Encoding]:
        """The library's encoding of each text, without any specials, and with the places of tokens where asked."""
        encode = self.tokenizer.encode_batch if places else self.tokenizer.encode_batch_fast
        try:
            return encode(list(texts), add_special_tokens=False)
        except Exception as error:  # of one that has no token for what it does not know
            what = f"the tokenizer refuses a text: {error}"
            raise ScalingError(what, key="tokenizer", fix="take another tokenizer") from error

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode([int(token) for token in ids], skip_special_tokens=False)

    def spellings(self, size: int) -> list[str]:
        """[size] the word that each token is, without the space before it; empty of specials, of pieces that do not
        begin a word, and of ids beyond the vocabulary.
        """
        special = set(self.specials.values())
        return [
            "" if token >= self.size or token in special or not self.words[token] else self.decode([token]).strip()
            for token in range(size)
        ]

    @cached_property
    def words(self) -> np.ndarray:
        """[size] bool, whether a token begins a word.

        WordPiece marks those that do not. Elsewhere they are letters and digits that no space mark sets off.
        """
        pieces = isinstance(self.tokenizer.model, tokenizers.models.WordPiece)
        begins = np.ones(self.size, dtype=bool)
        for token, index in self.tokenizer.get_vocab(with_added_tokens=False).items():
            begins[index] = (
                not token.startswith("##") if pieces else token.startswith(_SPACES) or not token[:1].isalnum()
            )
        begins[list(self.specials.values())] = True
        return begins


def pieces(text: str, limit: int = PIECE) -> Iterator[str]:
    """A long text in pieces of at least `limit` characters, which encode to the same ids as the whole.

    A cut comes before a line break that follows a visible character, where every tokenizer here sees a boundary anyway;
    only where there is none within another `limit` characters does it come where it must.
    """
    start = 0
    while len(text) - start > 2 * limit:
        boundary = _BOUNDARY.search(text, start + limit, start + 2 * limit)
        cut = boundary.start() if boundary else start + 2 * limit
        yield text[start:cut]
        start = cut
    yield text[start:]
