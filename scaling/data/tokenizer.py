"""Tokenizers: how text becomes tokens. The public classes here are the kinds of `tokenizer:`.

Those that learn do so from the training documents alone, from as much text as `sample` (in bytes) allows. `vocabulary`
counts every id, the four specials among them; a corpus too small for it gives fewer, and the manifest states the
number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from scaling.errors import ScalingError
from scaling.schema import Long, NonNegativeInt, PositiveInt

SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]
_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class Byte:
    """The bytes of UTF-8 themselves, after the specials: 260 ids (Xue et al. 2022, ByT5)."""

    learns: ClassVar[bool] = False

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        alphabet = {symbol: len(SPECIALS) + index for index, symbol in enumerate(_byte_symbols())}
        tokenizer = Tokenizer(models.BPE(vocab={**_numbered(SPECIALS), **alphabet}, merges=[]))
        tokenizer.add_special_tokens(SPECIALS)
        return _byte_level(tokenizer)


@dataclass(frozen=True, kw_only=True)
class Character:
    """The commonest characters, each a token; any other is `<unk>`. A control: no word has a token of its own."""

    vocabulary: PositiveInt = 1024
    sample: Long = 50_000_000
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))  # type: ignore[call-arg]
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        return _counted(tokenizer, self.vocabulary, texts)


@dataclass(frozen=True, kw_only=True)
class Word:
    """The commonest words and runs of punctuation, each a token; any other is `<unk>`, and spaces are not kept. A
    control: what is rare has no token at all.
    """

    vocabulary: PositiveInt = 32000
    case: bool = True
    sample: Long = 50_000_000
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))  # type: ignore[call-arg]
        if not self.case:
            tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return _counted(tokenizer, self.vocabulary, texts)


@dataclass(frozen=True, kw_only=True)
class ByteBPE:
    """Byte pairs merged by frequency within GPT-2's words, so that any text has an encoding (Radford et al. 2019)."""

    vocabulary: PositiveInt = 8192
    sample: Long = 50_000_000
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        _at_least(self.vocabulary, len(SPECIALS) + _BYTES)
        tokenizer = _byte_level(Tokenizer(models.BPE()))
        return _learned(tokenizer, trainers.BpeTrainer, self.vocabulary, texts, initial_alphabet=_byte_symbols())


@dataclass(frozen=True, kw_only=True)
class BPE:
    """Character pairs merged by frequency within words that carry their space (Sennrich et al. 2016; Kudo 2018).

    The `alphabet` commonest characters are kept; any other is `<unk>`.
    """

    vocabulary: PositiveInt = 32000
    alphabet: NonNegativeInt = 1000
    sample: Long = 50_000_000
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        _at_least(self.vocabulary, len(SPECIALS) + self.alphabet)
        tokenizer = _spaced(Tokenizer(models.BPE(unk_token="<unk>")))
        return _learned(tokenizer, trainers.BpeTrainer, self.vocabulary, texts, limit_alphabet=self.alphabet)


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """Longest known piece first, pieces within a word marked ## (Schuster and Nakajima 2012; Devlin et al. 2019)."""

    vocabulary: PositiveInt = 30522
    alphabet: NonNegativeInt = 1000
    case: bool = False
    sample: Long = 50_000_000
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        _at_least(self.vocabulary, len(SPECIALS) + self.alphabet)
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))  # type: ignore[call-arg]
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not self.case)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix="##")
        return _learned(tokenizer, trainers.WordPieceTrainer, self.vocabulary, texts, limit_alphabet=self.alphabet)


@dataclass(frozen=True, kw_only=True)
class Unigram:
    """The likeliest cut of a word into pieces with probabilities of their own (Kudo 2018; T5's, Raffel et al. 2020)."""

    vocabulary: PositiveInt = 32000
    sample: Long = 4_000_000  # learning takes far longer than that of pairs
    learns: ClassVar[bool] = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        others = [special for special in SPECIALS if special != "<unk>"]
        _at_least(self.vocabulary, len(SPECIALS) + 1)
        tokenizer, own = _spaced(Tokenizer(models.Unigram())), {"special_tokens": ["<unk>"], "unk_token": "<unk>"}
        _learned(tokenizer, trainers.UnigramTrainer, self.vocabulary - len(others), texts, **own)
        # After the model's own pieces, of which any may be found in a text: one that spells out <pad> has no <pad>.
        tokenizer.add_special_tokens(others)
        return tokenizer


@dataclass(frozen=True, kw_only=True)
class File:
    """A tokenizer from a file of the `tokenizers` library (tokenizer.json), as published models bring theirs."""

    path: str
    learns: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not Path(self.path).expanduser().is_file():
            raise ScalingError("there is no such file", key="path", value=self.path)

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        file = Path(self.path).expanduser()
        try:
            return Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exceptions
            raise ScalingError(f"this is no tokenizer: {error}", file=file) from error


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def _byte_symbols() -> list[str]:
    """GPT-2's visible symbol for each byte, in the order of the bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = iter(range(_BYTES, 2 * _BYTES))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(_BYTES)]


def _byte_level(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _spaced(tokenizer: Tokenizer) -> Tokenizer:
    """Words with ▁ for the space before them, after NFKC and with runs of spaces made one, as in SentencePiece."""
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")]  # type: ignore[list-item]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _counted(tokenizer: Tokenizer, vocabulary: int, texts: Iterator[str]) -> Tokenizer:
    """With the commonest pieces of its pre-tokenizer as tokens."""
    _at_least(vocabulary, len(SPECIALS) + 1)
    return _learned(tokenizer, trainers.WordLevelTrainer, vocabulary, texts)


def _learned(
    tokenizer: Tokenizer, trainer: Callable[..., Any], vocabulary: int, texts: Iterator[str], **own: Any
) -> Tokenizer:
    """With the tokens that a trainer finds in texts; its progress bar is for a person at a terminal."""
    settings = {"vocab_size": vocabulary, "special_tokens": SPECIALS, "show_progress": sys.stderr.isatty(), **own}
    tokenizer.train_from_iterator(texts, trainer(**settings))
    return tokenizer


def _at_least(vocabulary: int, least: int) -> None:
    if vocabulary < least:
        raise ScalingError(f"too small: specials and alphabet take {least}", key="vocabulary", value=vocabulary)
