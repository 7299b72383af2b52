"""Tokens: arrays of token ids of one's own, mapped where they lie; nothing is copied and no pickle is read.

Every file is read once, before its first use: its hash names the data, and no id of it may be beyond the vocabulary.
Its hash is kept in arrays/KEY.json, and holds until the size or the time of change of the file is another.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import BelowOne, NonNegativeInt, PositiveInt
from scaling.base.standard_error import progress
from scaling.config.files import TOKENS
from scaling.config.schema import Recipe, piece_of
from scaling.data import rows
from scaling.data.batches import Stream
from scaling.data.codec import Codec
from scaling.data.source import Source, under_data
from scaling.data.store import FORMAT, TOKENIZER, digest

_BLOCK = 1 << 22  # tokens that are looked at together
_NANOGPT, _HEADER = [20240520, 1], 1024  # how the header of llm.c and modded-nanogpt begins, and its bytes; then uint16
_MEGATRON = b"MMIDIDX\x00\x00"  # how the .idx file beside Megatron's .bin begins; at byte 17 is the number of a type
_MEGATRON_TYPES = {1: "uint8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}

Dtype = Literal["uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64"]


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
        self.files, self.validation, self.dtype, self.eos, self._vocabulary = files, validation, dtype, eos, vocabulary
        self._tokenizer: Any = piece_of("tokenizer", tokenizer)
        if self._tokenizer is not None and self._tokenizer.learns:
            fix = "take {kind: File, path: tokenizer.json}"
            kind = type(self._tokenizer).__name__
            raise ScalingError("it learns from text, and the data are tokens", key="tokenizer", value=kind, fix=fix)

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
        if self._vocabulary is None and self._tokenizer is None:
            fix = "give the number of ids, or data.tokenizer={kind: File, path: tokenizer.json}"
            raise ScalingError("arrays of ids do not state their vocabulary", key="data.vocabulary", fix=fix)
        what, fix = f"it is beyond the vocabulary of {self.vocabulary}", f"take one below {self.vocabulary}"
        refuse(self.eos is not None and self.eos >= self.vocabulary, what, fix, key="data.eos", value=self.eos)
        fraction = self.validation if isinstance(self.validation, float | int) else None
        with under_data():
            train = rows.find(self.files, "files", TOKENS)
            held_out = [] if fraction is not None else rows.find(self.validation, "validation", TOKENS)  # type: ignore[arg-type]
            arrays = {file: _mapped(file, self.dtype, self.vocabulary) for file in (*train, *held_out)}
        for file, ids in arrays.items():
            what, fix = f"it holds {ids.dtype.name}, as its header states", "leave data.dtype out"
            is_other = self.dtype not in (None, ids.dtype.name)
            refuse(is_other, what, fix, file=file, key="data.dtype", value=self.dtype)
        rows.check_apart(train, held_out)
        files = {file: (ids, _checked(file, ids, self.vocabulary, folder)) for file, ids in arrays.items()}
        stream = Stream([np.asarray(ids) for ids in arrays.values()])
        cut, total = int(stream.starts[len(train)]), int(stream.starts[-1])
        if fraction is not None:
            cut = total - int(total * fraction)
            what, fix = f"no token of {total:,} falls to validation", "raise it, or name files"
            refuse(cut == total, what, fix, key="data.validation", value=fraction)
        if fraction is not None and self.eos is not None:
            cut = _last_end(stream, cut, self.eos)
        record = {"format": FORMAT, "files": [[sha256, ids.dtype.str] for ids, sha256 in files.values()]}
        record |= {"train": len(train), "cut": cut, "tokenizer": None if self.codec is None else self.codec.sha256}
        fingerprint = digest({**record, "vocabulary": self.vocabulary, "specials": self.specials})[:16]
        if self.codec is not None and not (folder / fingerprint / TOKENIZER).exists():
            self.codec.save(folder / fingerprint / TOKENIZER)  # where `generate` and `export` look for it
        start, stop = (0, cut) if split == "train" else (cut, total)
        return MappedSource(f"{fingerprint}-{split}", self, stream, start, stop, files)


class MappedSource(Source):
    """The tokens from `start` to `stop` of a stream, cut into windows; `files` are their arrays with their hashes."""

    def __init__(
        self, fingerprint: str, data: Tokens, stream: Stream, start: int, stop: int, files: dict[Path, tuple[Any, str]]
    ):
        self.fingerprint, self.stream, self.start, self.files = fingerprint, stream, start, files
        self.vocabulary, self.specials, self.codec = data.vocabulary, data.specials, data.codec
        self.tokens, self.dtype = stop - start, np.uint16 if data.vocabulary <= 1 << 16 else np.uint32

    def verify(self) -> None:
        for file, (ids, sha256) in self.files.items():
            what, fix = "it was altered: its hash does not fit", "put it back, or touch it to take it as it is"
            refuse(_look(file, ids, self.vocabulary) != sha256, what, fix, file=file)


def _last_end(stream: Stream, cut: int, eos: int) -> int:
    """Where the last document before `cut` ends; `cut` where none does."""
    for stop in range(cut, 0, -_BLOCK):
        start = max(0, stop - _BLOCK)
        block = np.empty((1, stop - start), np.int64)
        stream.fill(block, np.array([start]))
        ends = np.flatnonzero(block[0] == eos)
        if len(ends):
            return start + int(ends[-1]) + 1
    return cut


def _mapped(file: Path, dtype: str | None, vocabulary: int) -> np.memmap:
    """The token ids of a file; their type is what its header states, or else `dtype`."""
    size, fix = file.stat().st_size, "name files of tokens by their ending"
    refuse(file.suffix not in TOKENS, "it is no .npy, .bin or .ds file", fix, file=file)
    refuse(not size, "it is empty", "name a file that holds tokens", file=file)
    if file.suffix == ".npy":
        return _of_npy(file)
    begin = np.fromfile(file, "<i4", 3).tolist()
    if size > _HEADER and begin[:2] == _NANOGPT and size == _HEADER + 2 * begin[2]:
        return np.memmap(file, "<u2", "r", _HEADER)
    index = file.with_suffix(".idx")
    if file.suffix == ".ds":
        dtype = dtype or ("uint16" if vocabulary <= 1 << 16 else "uint32")  # as datatrove chooses it
    elif index.is_file():
        with index.open("rb") as content:
            head = content.read(18)
        dtype = _MEGATRON_TYPES.get(head[-1], dtype) if head.startswith(_MEGATRON) else dtype
    if dtype is None:
        fix = "set data.dtype, as in data.dtype=uint16, which nanoGPT writes"
        raise ScalingError("a .bin file does not state the type of its ids", file=file, key="dtype", fix=fix)
    kind = np.dtype(dtype).newbyteorder("<")
    what = f"its {size:,} bytes are not a whole number of {dtype}"
    refuse(size % kind.itemsize, what, "copy the file again, or set its type", file=file, key="dtype", value=dtype)
    return np.memmap(file, kind, "r")


def _of_npy(file: Path) -> Any:
    fix = "save the ids with numpy.save as one array of whole numbers"
    try:
        ids = np.lib.format.open_memmap(file, mode="r")  # reads no pickles
    except Exception as error:  # of many kinds, by what is wrong in the header
        raise ScalingError(f"it is no .npy array that can be mapped: {error}", file=file, fix=fix) from None
    refuse(ids.dtype.kind not in "iu", f"it holds {ids.dtype.name}, and token ids are whole numbers", fix, file=file)
    what = f"it holds an array of shape {ids.shape} that does not lie row by row"
    refuse(not ids.flags.c_contiguous or ids.ndim not in (1, 2), what, fix, file=file)
    return ids.reshape(-1)


def _checked(file: Path, ids: np.memmap, vocabulary: int, folder: Path) -> str:
    """SHA-256 of a file of ids of this vocabulary. The file is read again only where it was touched."""
    place, now = [str(file), ids.dtype.str, ids.offset, vocabulary], rows.seen(file)
    record = folder / "arrays" / f"{digest(place)[:16]}.json"
    with suppress(OSError, ValueError, LookupError, TypeError):
        *known, sha256 = atomic.read_json(record)
        if known == now:
            return sha256
    sha256 = _look(file, ids, vocabulary)
    with suppress(OSError):  # a folder that may only be read: the file is read again the next time
        atomic.write_json(record, [*now, sha256])
    return sha256


def _look(file: Path, ids: np.memmap, vocabulary: int) -> str:
    """SHA-256 of the ids of a file, unless they cannot be of this vocabulary."""
    hashed, advance = hashlib.sha256(), progress(f"looking through {file.name}", ids.nbytes)
    halves = np.zeros(2, bool)  # whether any id of an even, and of an odd place is not 0
    for start in range(0, len(ids), _BLOCK):
        block = np.asarray(ids[start : start + _BLOCK])
        hashed.update(block.view(np.uint8).data)
        wrong = np.flatnonzero((block < 0) | (block >= vocabulary))
        if len(wrong):
            token, place = int(block[wrong[0]]), start + int(wrong[0])
            reason = "negative" if token < 0 else f"beyond the vocabulary of {vocabulary:,}"
            fix = f"raise data.vocabulary, correct the file, or set data.dtype if the ids are not {ids.dtype.name}"
            raise ScalingError(f"token {token:,} at position {place:,} is {reason}", file=file, fix=fix)
        halves |= [block[::2].any(), block[1::2].any()]
        advance(block.nbytes)
    if halves.tolist() == [True, False] and len(ids) >= 64:
        what = f"every second {ids.dtype.name} is 0, as where ids are stored in more bytes"
        fix = f"set data.dtype to uint{16 * ids.dtype.itemsize}"
        raise ScalingError(what, file=file, key="data.dtype", value=ids.dtype.name, fix=fix)
    return hashed.hexdigest()
