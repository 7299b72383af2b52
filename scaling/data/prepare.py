"""Preparing: each part of a corpus is tokenized by a job of its own, and a part that is done is not read again.

preparing/KEY/          the work so far; nothing reads tokens from here
    plan.json           what the corpus was when the work began, and its parts
    tokenizer.json
    parts/00003.json    written last, once the shards of part 3 are on disk
    parts/00003.hashes  of a part that is held out: the hashes of its documents, which no other part trains on
requests/KEY.json       which fingerprint a data line became, and what its files were then
FINGERPRINT/            the whole, put in place by one rename
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError
from scaling.base.standard_error import progress
from scaling.config import schema
from scaling.data.batches import in_threads
from scaling.data.codec import Codec
from scaling.data.documents import Part, Snapshot, Splitter, is_held_out_part, size, until
from scaling.data.source import under_data
from scaling.data.store import NAME, TOKENIZER, TRUSTED, Manifest, Shard, alone, digest, discard, seen
from scaling.data.text import Text

_BLOCK = 1 << 20  # bytes of text that are tokenized as one task,
_MANY = 1 << 13  # or fewer where documents are tiny, because each takes some memory of its own
_AHEAD = 3  # tasks under way
_BUFFER = 1 << 22  # bytes of tokens held back to be written at once

Call = tuple[str, Callable[..., None], tuple[Any, ...]]
"""The name of a job, a function of a module, and its arguments, which are plain."""


def in_turn(jobs: Sequence[Call]) -> None:
    """Do jobs here, one after another."""
    for _, function, arguments in jobs:
        function(*arguments)


def prepare(text: Text, folder: Path, run: Callable[[Sequence[Call]], None] = in_turn) -> Path:
    """The folder that holds `text` prepared: what is there already if it still fits, else made, or made whole. `run`
    returns when all jobs are done, in whatever order and wherever.
    """
    with alone(folder, text.key):
        entry = text.entry(folder)
        if entry is None or text.changed(entry["stamp"]) is not None:
            home = _made(text, folder, run)
        else:
            home = folder / entry["fingerprint"]
        Manifest.read(home).check(home)
        return home


def _made(text: Text, folder: Path, run: Callable[[Sequence[Call]], None]) -> Path:
    work = folder / "preparing" / text.key
    snapshot = _snapshot(text, folder, work)
    if not (work / NAME).exists():
        codec = _codec(text, snapshot, folder, work)
        _tokenize(snapshot, text, work, run)
        changed = text.corpus.changed(snapshot.stamp)
        if changed is not None:
            raise ScalingError("it changed while it was read", file=changed, fix="run the same command again")
        records = [atomic.read_json(file) for file in sorted((work / "parts").glob("*.json"))]
        if dropped := sum(record["dropped"] for record in records):
            print(f"{dropped} training documents were left out: validation has them", file=sys.stderr)
        atomic.write_json(work / TRUSTED, {name: as_ for record in records for name, as_ in record["files"].items()})
        Manifest.of(codec, _splits(text, records), text.request, snapshot.stamp).write(work)
    # One rename completes it. The pointer comes first: alone it has no effect, and the work is found again.
    home = folder / Manifest.read(work).fingerprint
    text.enter(folder, home.name, snapshot.stamp)
    if home.exists():
        discard(work)
    else:
        shutil.rmtree(work / "parts", ignore_errors=True)
        for partial in work.rglob(f"{atomic.TEMPORARY}*"):  # what a kill left of a file that was being written
            partial.unlink()
        work.rename(home)
        atomic.flush_folder(folder)
    return home


def _snapshot(text: Text, folder: Path, work: Path) -> Snapshot:
    """The snapshot with which the work began, if the corpus is still what it was; or a new one, and no work."""
    file = work / "plan.json"
    if file.exists():
        begun = Snapshot(text.corpus, **atomic.read_json(file))
        if text.changed(begun.stamp) is None:
            return begun
        discard(work)
    with under_data("data.corpus"):
        snapshot = text.corpus.snapshot(folder)
    snapshot = Snapshot(text.corpus, text.stamp(snapshot), snapshot.parts, snapshot.limit)
    atomic.write_json(file, {"stamp": snapshot.stamp, "parts": snapshot.parts, "limit": snapshot.limit})
    return snapshot


def _codec(text: Text, snapshot: Snapshot, folder: Path, work: Path) -> Codec:
    """The tokenizer: that of the work so far, or one learned before from the same text, or a new one."""
    file = work / TOKENIZER
    if not file.exists():
        cached = folder / "tokenizers" / f"{digest({**text.request, 'stamp': snapshot.stamp})[:16]}.json"
        if text.tokenizer.learns and cached.exists():
            codec = Codec.load(cached)
        else:
            with under_data("data.tokenizer"):
                codec = Codec.of(text.tokenizer, _sample(text, snapshot))
            if text.tokenizer.learns:
                codec.save(cached)
        codec.save(file)
    return Codec.load(file)


def _sample(text: Text, snapshot: Snapshot) -> Iterator[str]:
    """Training text for the tokenizer, up to its `sample`."""
    splitter = Splitter(text.validation)
    advance = progress("reading text for the tokenizer", text.tokenizer.sample)
    with under_data("data.corpus"):
        training = (document for document in snapshot.documents() if splitter(document) == "train")
        for document in until(training, text.tokenizer.sample):
            advance(size(document))
            yield from document.sides()


def _splits(text: Text, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Shard]]]:
    """The shards of all parts, by split and side."""
    splits: dict[str, dict[str, list[Shard]]] = {"train": {}, "validation": {}}
    for record in records:
        for shard in record["shards"]:
            split, _, name = shard["name"].partition("/")
            splits[split].setdefault(name.partition(".")[2], []).append(shard)
    if not splits["train"]:
        what, fix = "the corpus is empty: it has no document to train on", "name files that hold text"
        raise ScalingError(what, key="data.corpus", value=text.request["corpus"], fix=fix)
    if not splits["validation"] and text.validation:
        what, fix = "no document fell to validation", "raise it, or add documents"
        raise ScalingError(what, key="data.validation", value=text.validation, fix=fix)
    return splits


# --- jobs ---


def _tokenize(snapshot: Snapshot, text: Text, work: Path, run: Callable[[Sequence[Call]], None]) -> None:
    """Have the parts tokenized that are not on disk yet: held-out ones first, because the others leave out what is in
    them. Where a limit holds, a part begins when it is known how much text those before it have.
    """

    def finish(numbers: Sequence[int], limit: int | None = None) -> None:
        count, folder = len(snapshot.parts), str(work.absolute())
        jobs: list[Call] = [
            (f"part {n + 1} of {count}", tokenize, (text.request, dict(snapshot.parts[n]), folder, n, limit))
            for n in numbers
            if not _record(work, n).exists()
        ]
        if jobs:
            run(jobs)

    held_out = [number for number, part in enumerate(snapshot.parts) if is_held_out_part(part)]
    others = [number for number in range(len(snapshot.parts)) if number not in held_out]
    finish(held_out)
    left = snapshot.limit
    if left is None:
        finish(others)
        return
    for number in others:
        if left > 0:
            finish([number], limit=left)
            left -= atomic.read_json(_record(work, number))["bytes"]


def tokenize(request: Mapping[str, Any], part: Part, folder: str, number: int, limit: int | None = None) -> None:
    """Write the shards of a part, up to `limit` bytes of text, and last its record; a part that has one is done."""
    work = Path(folder)
    if _record(work, number).exists():
        return
    text: Text = schema.build("data", {"kind": "Text", **request})
    codec, advance = Codec.load(work / TOKENIZER), progress(f"part {number + 1}", part.get("bytes"))
    hashes = (np.fromfile(file, np.uint64).tolist() for file in sorted((work / "parts").glob("*.hashes")))
    splitter = Splitter(text.validation, set(itertools.chain.from_iterable(hashes)))

    def encoded(block: Block) -> tuple[int, list[tuple[str, int, array]]]:
        texts = [text for _, text in block.texts]
        return block.bytes, [
            (name, len(text.encode()), ids) for (name, text), ids in zip(block.texts, codec.encode(texts), strict=True)
        ]

    writers: dict[str, ShardWriter] = {}
    read = 0
    with ExitStack() as unfinished:
        # The tokenizer releases the interpreter's lock and spreads a block over the threads it has; a few threads keep
        # it busy while this one turns its results into arrays.
        for count, texts in in_threads(encoded, _blocks(text, part, number, splitter, limit), _AHEAD, _AHEAD):
            read += count
            advance(count)
            for name, bytes_, ids in texts:
                if name not in writers:
                    writers[name] = ShardWriter(work, name, codec)
                    unfinished.callback(writers[name].discard)
                writers[name].add(ids, bytes_)
        shards = [writer.close() for writer in writers.values()]
    if is_held_out_part(part):
        atomic.write(work / "parts" / f"{number:05d}.hashes", np.array(sorted(splitter.held_out), np.uint64).tobytes())
    files = {f"{name}.{ending}": seen(work / f"{name}.{ending}") for name in writers for ending in ("tokens", "ends")}
    record = {"shards": shards, "bytes": read, "dropped": splitter.dropped, "files": files}
    atomic.write_json(_record(work, number), record)


def _record(work: Path, number: int) -> Path:
    return work / "parts" / f"{number:05d}.json"


class Block(NamedTuple):
    """Texts, each with the name of the shard that it goes into, and the bytes of all that was read for them."""

    bytes: int
    texts: list[tuple[str, str]]


def _blocks(text: Text, part: Part, number: int, splitter: Splitter, limit: int | None) -> Iterator[Block]:
    texts: list[tuple[str, str]] = []
    read = 0
    with under_data("data.corpus"):
        for document in until(text.corpus.read(part), limit):
            if split := splitter(document):
                sides = zip(text.corpus.sides, document.sides())
                texts += [(f"{split}/{number:05d}.{side}", written) for side, written in sides]
            read += size(document)
            if read >= _BLOCK or len(texts) >= _MANY:
                yield Block(read, texts)
                texts, read = [], 0
    yield Block(read, texts)


class ShardWriter:
    """A shard that is being written, and counts once it is closed."""

    def __init__(self, folder: Path, name: str, codec: Codec):
        self.name, self.codec, self.path = name, codec, folder / f"{name}.tokens"
        self.path.parent.mkdir(exist_ok=True)
        self.partial = atomic.temporary(self.path)
        self.file = self.partial.open("wb")
        self.buffer, self.ends = array(codec.dtype.char), array("Q")
        self.hash = hashlib.sha256()
        self.written = self.bytes = self.largest = self.unknown = 0

    def add(self, ids: array, size: int) -> None:
        """One document's tokens, which encode `size` bytes of text; `eos` follows them."""
        self.buffer.extend(ids)
        self.buffer.append(self.codec.specials["eos"])
        self.ends.append(self.written + len(self.buffer))
        self.bytes += size
        if len(self.buffer) * self.buffer.itemsize >= _BUFFER:
            self._flush()

    def close(self) -> Shard:
        """Put everything on the disk."""
        self._flush()
        atomic.flush(self.file)
        self.file.close()
        ends = np.array(self.ends, dtype="<u8").tobytes()
        self.partial.replace(self.path)
        atomic.write(self.path.with_suffix(".ends"), ends)
        return {
            "name": self.name,
            "tokens": self.written,
            "documents": len(self.ends),
            "bytes": self.bytes,
            "unknown": self.unknown,
            "largest": self.largest,
            "tokens_sha256": self.hash.hexdigest(),
            "ends_sha256": hashlib.sha256(ends).hexdigest(),
        }

    def discard(self) -> None:
        """Leave nothing of a part that will not be finished; a full disk refuses what is still to be written again."""
        with suppress(OSError):
            self.file.close()
        self.partial.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self.buffer:
            ids = np.frombuffer(self.buffer, dtype=self.buffer.typecode)
            self.largest = max(self.largest, int(ids.max()))
            self.unknown += int((ids == self.codec.specials.get("unk", -1)).sum())
            content = ids.astype(ids.dtype.newbyteorder("<"), copy=False).tobytes()
            self.file.write(content)
            self.hash.update(content)
            self.written += len(ids)
            self.buffer = array(self.buffer.typecode)
