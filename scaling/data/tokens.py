"""Tokens: arrays of token ids of one's own, mapped where they lie; nothing is copied and no pickle is read.

Every file is read once, before its first use: its hash names the data, and no id of it may be beyond the vocabulary.
Its hash is kept in arrays/KEY.json, and holds until the size or the time of change of the file is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse, under
from scaling.base.numbers import BelowOne, NonNegativeInt, PositiveInt
from scaling.base.standard_error import progress
from scaling.config.files import TOKENS
from scaling.config.schema import Recipe
from scaling.data.batches import Stream
from scaling.data.codec import Codec
from scaling.data.rows import find
from scaling.data.source import Source, check_split, under_data
from scaling.data.store import FORMAT, TOKENIZER, digest, mapped

_BLOCK = 1 << 22  # tokens that are looked at together
_NANOGPT = (20240520, 1, 1024)  # magic, version and length of the header that llm.c and modded-nanogpt write; uint16
_MEGATRON = b"MMIDIDX\x00\x00"  # how the .idx file beside Megatron's .bin begins; at byte 17 is the number of a type
_MEGATRON_TYPES = {1: "uint8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}

Dtype = Literal["uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64"]


@dataclass(frozen=True)
class Array:
    """The place of the token ids in one file."""

    file: str
    dtype: str
    offset: int  # bytes before the first
    tokens: int

    def map(self) -> np.ndarray:
        return mapped(self.file, self.dtype, offset=self.offset, shape=(self.tokens,))


class Tokens:
    """Token ids in `.npy` arrays, or in files of `dtype`: `.bin` of nanoGPT or Megatron, whose `.idx` states the type,
    and `.ds` of datatrove; end to end they are one text.

    `vocabulary` is the number of ids; with a `tokenizer` ({kind: File, path: tokenizer.json}) it is known, and tokens
    can be shown as text. `eos` is the id that ends a document. `validation` is the fraction at the end of all tokens
    that is held out, or names files of its own.
    """

    def __init__(
        self,
        *,
        files: str | list[str],
        validation: BelowOne | str | list[str] = 0.01,
        dtype: Dtype | None = None,
        vocabulary: PositiveInt | None = None,
        tokenizer: Recipe | None = None,
        eos: NonNegativeInt | None = None,
    ):
        self.files, self.validation, self.dtype, self.eos = files, validation, dtype, eos
        with under("tokenizer"):
            self._tokenizer: Any = None if tokenizer is None else tokenizer()
        if self._tokenizer is not None and self._tokenizer.learns:
            fix = "take {kind: File, path: tokenizer.json}"
            kind = type(self._tokenizer).__name__
            raise ScalingError("it learns from text, and the data are tokens", key="tokenizer", value=kind, fix=fix)
        self._vocabulary, self.hashes = vocabulary, dict[Array, str]()

    @cached_property
    def codec(self) -> Codec | None:
        """The tokenizer that made the ids, where it is named."""
        return None if self._tokenizer is None else Codec.of(self._tokenizer)

    @property
    def vocabulary(self) -> int:
        return self._vocabulary or self.codec.size  # type: ignore[union-attr]

    @property
    def specials(self) -> dict[str, int]:
        named = {} if self.codec is None else self.codec.specials
        ids = named if self.eos is None else {**named, "eos": self.eos}
        return {name: token for name, token in ids.items() if token < self.vocabulary}

    def open(self, split: str, folder: Path) -> MappedSource:
        check_split(split)
        if self._vocabulary is None and self._tokenizer is None:
            fix = "give the number of ids, or data.tokenizer={kind: File, path: tokenizer.json}"
            raise ScalingError("arrays of ids do not state their vocabulary", key="data.vocabulary", fix=fix)
        what, fix = f"it is beyond the vocabulary of {self.vocabulary}", f"take one below {self.vocabulary}"
        refuse(self.eos is not None and self.eos >= self.vocabulary, what, fix, key="data.eos", value=self.eos)
        fraction = self.validation if isinstance(self.validation, float | int) else None
        with under_data():
            train = self._arrays(self.files, "files")
            held_out = self._arrays(self.validation, "validation") if fraction is None else []  # type: ignore[arg-type]
        both = {Path(a.file).resolve() for a in train} & {Path(a.file).resolve() for a in held_out}
        if both:
            raise ScalingError("it is named for training and for validation", file=min(both))
        self.hashes = {array: _checked(array, self.vocabulary, folder) for array in (*train, *held_out)}
        hashes = [[self.hashes[array], array.dtype] for array in (*train, *held_out)]
        total = sum(array.tokens for array in train)
        cut = total if fraction is None else self._cut(train, total, fraction)
        what, fix = f"no token of {total:,} falls to validation", "raise it, or name files"
        refuse(cut == total and fraction is not None, what, fix, key="data.validation", value=fraction)
        meaning = {"vocabulary": self.vocabulary, "specials": self.specials}
        made_by = None if self.codec is None else self.codec.sha256
        record = {"format": FORMAT, "files": hashes, "train": len(train), "cut": cut, "tokenizer": made_by, **meaning}
        fingerprint = digest(record)[:16]
        if self.codec is not None and not (folder / fingerprint / TOKENIZER).exists():
            self.codec.save(folder / fingerprint / TOKENIZER)  # where `generate` and `export` look for it
        start, stop, arrays = 0, cut, train
        if split != "train":
            start, arrays = (0, held_out) if fraction is None else (cut, train)
            stop = sum(array.tokens for array in arrays)
        return MappedSource(f"{fingerprint}-{split}", self, tuple(arrays), start, stop)

    def _arrays(self, patterns: str | list[str], key: str) -> list[Array]:
        return [_array(file, self.dtype, self.vocabulary) for file in find(patterns, key, TOKENS)]

    def _cut(self, arrays: Sequence[Array], total: int, fraction: float) -> int:
        """The first token of validation: at its fraction, or after the last document that ends before it."""
        cut = total - int(total * fraction)
        stream = Stream([array.map() for array in arrays])
        for stop in range(cut, 0, -_BLOCK) if self.eos is not None and cut < total else ():
            start = max(0, stop - _BLOCK)
            block = np.empty((1, stop - start), np.int64)
            stream.fill(block, np.array([start]))
            ends = np.flatnonzero(block[0] == self.eos)
            if len(ends):
                return start + int(ends[-1]) + 1
        return cut


class MappedSource(Source):
    """The tokens from `start` to `stop` of arrays end to end, cut into windows."""

    def __init__(self, fingerprint: str, data: Tokens, arrays: tuple[Array, ...], start: int, stop: int):
        self.fingerprint, self.data, self.arrays, self.start, self.stop = fingerprint, data, arrays, start, stop
        self.vocabulary, self.specials, self.codec = data.vocabulary, data.specials, data.codec
        self.tokens, self.dtype = stop - start, np.uint16 if data.vocabulary <= 1 << 16 else np.uint32

    def __reduce__(self):
        # Pickled, the files are mapped again, not copied.
        return type(self), (self.fingerprint, self.data, self.arrays, self.start, self.stop)

    @cached_property
    def stream(self) -> Stream:
        return Stream([array.map() for array in self.arrays])

    def verify(self) -> None:
        """Take the hash of every file again, touched or not."""
        for array, sha256 in self.data.hashes.items():
            what, fix = "it was altered: its hash does not fit", "put it back, or touch it to take it as it is"
            refuse(_look(array, self.vocabulary) != sha256, what, fix, file=array.file)


def _array(file: Path, dtype: str | None, vocabulary: int) -> Array:
    """The place of the token ids in a file, as its header or `dtype` states."""
    if file.suffix not in TOKENS:
        raise ScalingError("it is no .npy, .bin or .ds file", file=file, fix="name files of tokens by their ending")
    if file.suffix == ".ds" and dtype is None:
        dtype = "uint16" if vocabulary <= 1 << 16 else "uint32"  # as datatrove chooses it
    array = _of_npy(file) if file.suffix == ".npy" else _of_bin(file, dtype)
    refuse(array.tokens == 0, "it is empty", "name a file that holds tokens", file=file)
    kind = np.dtype(array.dtype)
    what, fix = f"it holds {kind.name}, as its header states", "leave data.dtype out"
    refuse(dtype is not None and kind != np.dtype(dtype), what, fix, file=file, key="dtype", value=dtype)
    return array


def _of_npy(file: Path) -> Array:
    fix = "save the ids with numpy.save as one array of whole numbers"
    try:
        ids = np.lib.format.open_memmap(file, mode="r")  # reads no pickles
    except (ValueError, EOFError, OSError, SyntaxError, OverflowError) as error:
        raise ScalingError(f"it is no .npy array that can be mapped: {error}", file=file, fix=fix) from None
    refuse(ids.dtype.kind not in "iu", f"it holds {ids.dtype.name}, and token ids are whole numbers", fix, file=file)
    is_by_row = ids.flags.c_contiguous and ids.ndim in (1, 2)
    refuse(not is_by_row, f"it holds an array of shape {ids.shape} that does not lie row by row", fix, file=file)
    return Array(str(file), ids.dtype.str, ids.offset, ids.size)


def _of_bin(file: Path, dtype: str | None) -> Array:
    size, index = file.stat().st_size, file.with_suffix(".idx")
    if file.suffix == ".bin" and index.is_file():
        with index.open("rb") as content:
            head = content.read(18)
        if head.startswith(_MEGATRON) and len(head) == 18:
            dtype = dtype or _MEGATRON_TYPES.get(head[17])
    magic, version, header = _NANOGPT
    begin = np.fromfile(file, "<i4", 3).tolist()
    if begin[:2] == [magic, version] and header + 2 * begin[2] == size:
        return Array(str(file), "<u2", header, begin[2])
    if dtype is None:
        fix = "set data.dtype, as in data.dtype=uint16, which nanoGPT writes"
        raise ScalingError("a .bin file does not state the type of its ids", file=file, key="dtype", fix=fix)
    kind = np.dtype(dtype).newbyteorder("<")
    what = f"its {size:,} bytes are not a whole number of {dtype}"
    refuse(size % kind.itemsize, what, "copy the file again, or set its type", file=file, key="dtype", value=dtype)
    return Array(str(file), kind.str, 0, size // kind.itemsize)


def _checked(array: Array, vocabulary: int, folder: Path) -> str:
    """SHA-256 of a file of ids of this vocabulary. The file is read again only where it was touched."""
    status = Path(array.file).stat()
    stamp = {**asdict(array), "vocabulary": vocabulary, "size": status.st_size, "time": status.st_mtime_ns}
    record = folder / "arrays" / f"{digest(array.file)[:16]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        manifest = atomic.read_json(record)
        if manifest["stamp"] == stamp:
            return manifest["sha256"]
    sha256 = _look(array, vocabulary)
    with suppress(OSError):  # a folder that may only be read: the file is read again the next time
        atomic.write_json(record, {"stamp": stamp, "sha256": sha256})
    return sha256


def _look(array: Array, vocabulary: int) -> str:
    """SHA-256 of the ids of a file, unless they cannot be of this vocabulary."""
    file, kind, ids, hashed = Path(array.file), np.dtype(array.dtype), array.map(), hashlib.sha256()
    wrong = "" if file.suffix == ".npy" else f", or data.dtype if the ids are not {kind.name}"
    every_second_is_0, largest = len(ids) >= 64, 0
    advance = progress(f"looking through {file.name}", ids.nbytes)
    for start in range(0, len(ids), _BLOCK):
        block = ids[start : start + _BLOCK]
        hashed.update(block.view(np.uint8).data)
        for place in (int(block.argmin()), int(block.argmax())):
            token, at = int(block[place]), f"at position {start + place:,}"
            refuse(token < 0, f"token {token:,} {at} is negative", f"correct the file{wrong}", file=file)
            what = f"token {token:,} {at} is beyond the vocabulary of {vocabulary:,}"
            refuse(token >= vocabulary, what, f"raise data.vocabulary or correct the file{wrong}", file=file)
            largest = max(largest, token)
        every_second_is_0 = every_second_is_0 and not block[1::2].any()
        advance(block.nbytes)
    if every_second_is_0 and largest:  # an array of nothing but 0 has no second byte to speak of
        what = f"every second {kind.name} is 0, as where ids are stored in more bytes"
        fix = f"set data.dtype to uint{16 * kind.itemsize}"
        raise ScalingError(what, file=file, key="data.dtype", value=kind.name, fix=fix)
    return hashed.hexdigest()
