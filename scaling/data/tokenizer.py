"""Tokenizers: how text becomes tokens. The public classes here are the kinds of `tokenizer:`.

Those that learn do so from the training documents alone, from as much text as `sample` (in bytes) allows. `vocabulary`
counts every id, the four specials among them; a corpus too small for it gives fewer, and the manifest states the
number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import Long, NonNegativeInt, PositiveInt
from scaling.data.codec import Codec

SPECIALS = ["<pad>", "<bos>", "<eos>", "<unk>"]
_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class _Learned:
    vocabulary: PositiveInt = 32000
    sample: Long = 50_000_000

    learns = True  # from text: a tokenizer that does not is the same for every text

    def learned(
        self, tokenizer: Tokenizer, trainer: Callable[..., Any], texts: Iterator[str], *, least: int = 1, **own: Any
    ) -> Tokenizer:
        """The tokenizer with the tokens that a trainer finds in texts, besides the specials at least `least`."""
        what = f"too small: specials and alphabet take {len(SPECIALS) + least}"
        fix = f"raise it, or lower alphabet={least}" if hasattr(self, "alphabet") else "raise it"
        refuse(self.vocabulary < len(SPECIALS) + least, what, fix, key="vocabulary", value=self.vocabulary)
        bar = sys.stderr.isatty()
        settings = {"vocab_size": self.vocabulary, "special_tokens": SPECIALS, "show_progress": bar, **own}
        try:
            tokenizer.train_from_iterator(texts, trainer(**settings))
        except (ScalingError, OSError):  # of the texts
            raise
        except Exception as error:  # the library raises bare Exceptions
            what = f"no tokenizer could be learned: {error}"
            raise ScalingError(what, key="vocabulary", value=self.vocabulary, fix="raise it") from error
        return tokenizer


@dataclass(frozen=True, kw_only=True)
class Byte:
    """The bytes of UTF-8 themselves, after the specials: 260 ids (Xue et al. 2022, ByT5)."""

    learns = False

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        ids = {token: index for index, token in enumerate([*SPECIALS, *_byte_symbols()])}
        tokenizer = _byte_level(Tokenizer(models.BPE(vocab=ids, merges=[])))
        tokenizer.add_special_tokens(SPECIALS)
        return tokenizer


@dataclass(frozen=True, kw_only=True)
class Character(_Learned):
    """The commonest characters, each a token; any other is `<unk>`. A control: no word has a token of its own."""

    vocabulary: PositiveInt = 1024

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))  # type: ignore[call-arg]
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
        return self.learned(tokenizer, trainers.WordLevelTrainer, texts)


@dataclass(frozen=True, kw_only=True)
class Word(_Learned):
    """The commonest words and runs of punctuation, each a token; others are `<unk>`, spaces are dropped. A control."""

    case: bool = True

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))  # type: ignore[call-arg]
        if not self.case:
            tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return self.learned(tokenizer, trainers.WordLevelTrainer, texts)


@dataclass(frozen=True, kw_only=True)
class ByteBPE(_Learned):
    """Byte pairs merged by frequency within GPT-2's words, so that any text has an encoding (Radford et al. 2019)."""

    vocabulary: PositiveInt = 8192

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer, alphabet = _byte_level(Tokenizer(models.BPE())), _byte_symbols()
        return self.learned(tokenizer, trainers.BpeTrainer, texts, least=_BYTES, initial_alphabet=alphabet)


@dataclass(frozen=True, kw_only=True)
class BPE(_Learned):
    """Character pairs merged by frequency within words that carry their space (Sennrich et al. 2016; Kudo 2018).

    The `alphabet` commonest characters are kept; any other is `<unk>`.
    """

    alphabet: NonNegativeInt = 1000

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer, alphabet = _spaced(Tokenizer(models.BPE(unk_token="<unk>"))), self.alphabet
        return self.learned(tokenizer, trainers.BpeTrainer, texts, least=alphabet, limit_alphabet=alphabet)


@dataclass(frozen=True, kw_only=True)
class WordPiece(_Learned):
    """Longest known piece first, pieces within a word marked ## (Schuster and Nakajima 2012; Devlin et al. 2019)."""

    vocabulary: PositiveInt = 30522
    alphabet: NonNegativeInt = 1000
    case: bool = False

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        tokenizer, alphabet = Tokenizer(models.WordPiece(unk_token="<unk>")), self.alphabet  # type: ignore[call-arg]
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not self.case)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece(prefix="##")
        return self.learned(tokenizer, trainers.WordPieceTrainer, texts, least=alphabet, limit_alphabet=alphabet)


@dataclass(frozen=True, kw_only=True)
class Unigram(_Learned):
    """The likeliest cut of a word into pieces with probabilities of their own (Kudo 2018; T5's, Raffel et al. 2020)."""

    sample: Long = 4_000_000  # learning takes far longer than that of pairs

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        others = [special for special in SPECIALS if special != "<unk>"]
        settings = {"special_tokens": ["<unk>"], "unk_token": "<unk>", "vocab_size": self.vocabulary - len(others)}
        tokenizer = self.learned(_spaced(Tokenizer(models.Unigram())), trainers.UnigramTrainer, texts, **settings)
        # After the model's own pieces, of which any may be found in a text: one that spells out <pad> has no <pad>.
        tokenizer.add_special_tokens(others)
        return tokenizer


@dataclass(frozen=True, kw_only=True)
class File:
    """A tokenizer from a file of the `tokenizers` library (tokenizer.json), as published models bring theirs."""

    path: str
    learns = False

    def __post_init__(self) -> None:
        refuse(not Path(os.path.expanduser(self.path)).is_file(), "there is no such file", key="path", value=self.path)

    def fit(self, texts: Iterator[str]) -> Tokenizer:
        return Codec.load(Path(os.path.expanduser(self.path))).tokenizer


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
