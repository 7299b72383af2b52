"""Preparing: a corpus read once, tokenized on all cores, and written part by part: a kill costs one part at most.

preparing/KEY/          the work so far; nothing reads tokens from here
    stamp.json          what the corpus was when the work began
    tokenizer.json
    parts/00003.json    written last, once the shards of part 3 are on disk
requests/KEY.json       which fingerprint a data line became, and what its files were then
FINGERPRINT/            the whole, put in place by one rename
"""

from __future__ import annotations

import fcntl
import itertools
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.data.codec import Codec
from scaling.data.corpus.document import Document, Snapshot, size
from scaling.data.hashing import Splitter
from scaling.data.progress import bar
from scaling.data.shards import NAME, TOKENIZER, Manifest, Part, Shard, digest, joined
from scaling.data.store import check
from scaling.data.text import Text
from scaling.data.tokenizing import Entry, tokenized
from scaling.errors import ScalingError, from_os


def prepare(text: Text, folder: Path) -> Path:
    """The folder that holds `text` prepared: what is there already if it still fits, else made, or made whole."""
    try:
        with _alone(folder / "preparing" / f"{text.key}.lock"):
            return _prepared(text, folder)
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise from_os(error, "preparing stopped, and will resume where it was") from error


def _prepared(text: Text, folder: Path) -> Path:
    home = text.home(folder)
    if home is not None and text.outdated(folder) is None:
        check(home, Manifest.read(home))
        return home
    with _about("corpus"):
        snapshot = text.corpus.snapshot(folder)
    stamp = text.stamp(snapshot)
    work = folder / "preparing" / text.key
    _begin(work, stamp)
    if not (work / NAME).exists():
        codec = _codec(text, snapshot, folder, work)
        _tokenize(text, snapshot, codec, work)
        changed = text.corpus.changed(snapshot.stamp)
        if changed is not None:
            raise ScalingError("it changed while it was read", file=changed, fix="run the same command again")
        _manifest(text, stamp, codec, work).write(work)
    return _publish(text, stamp, folder, work)


def _begin(work: Path, stamp: Mapping[str, Any]) -> None:
    """Work of before goes on only if the corpus is what it was then."""
    file = work / "stamp.json"
    if file.exists() and digest(atomic.read_json(file)) != digest(stamp):
        _discard(work)
    if not file.exists():
        atomic.write_json(file, stamp)
    for partial in work.glob(".*"):  # what a kill left of a file that was being written
        partial.unlink()


def _publish(text: Text, stamp: Mapping[str, Any], folder: Path, work: Path) -> Path:
    """One rename completes it. The pointer comes first: alone it has no effect, and the work is found again."""
    manifest = Manifest.read(work)
    home = folder / manifest.fingerprint
    text.enter(folder, manifest.fingerprint, stamp)
    if home.exists():  # the same data, perhaps in shards of another size
        _discard(work)
        manifest = Manifest.read(home)
    else:
        shutil.rmtree(work / "parts", ignore_errors=True)
        work.rename(home)
        atomic.flush_folder(folder)
    check(home, manifest)
    return home


def _discard(work: Path) -> None:
    """Renamed before it is removed, so that a kill leaves no part of it where work is looked for."""
    gone = work.with_suffix(".discarded")
    shutil.rmtree(gone, ignore_errors=True)
    work.rename(gone)
    shutil.rmtree(gone)


def _codec(text: Text, snapshot: Snapshot, folder: Path, work: Path) -> Codec:
    """The tokenizer: that of the work so far, or one learned before from the same text, or a new one."""
    file = work / TOKENIZER
    if file.exists():
        return Codec.load(file)
    request = {key: text.request[key] for key in ("corpus", "tokenizer", "validation")}
    cached = folder / "tokenizers" / f"{digest({**request, 'stamp': snapshot.stamp})[:16]}.json"
    if text.tokenizer.learns and cached.exists():
        codec = Codec.load(cached)
    else:
        with _about("tokenizer"):
            codec = Codec(text.tokenizer.fit(_sample(text, snapshot)))
        if text.tokenizer.learns:
            codec.save(cached)
    codec.save(file)
    return Codec.load(file)


def _sample(text: Text, snapshot: Snapshot) -> Iterator[str]:
    """Training text for the tokenizer, up to its `sample`."""
    splitter = Splitter(text.validation)
    left = text.tokenizer.sample
    with bar("learning the tokenizer", left if snapshot.bytes is None else min(left, snapshot.bytes)) as advance:
        for document in _documents(snapshot):
            if splitter(document) == "train":
                yield from document.sides()
                left -= size(document)
                advance(size(document))
            if left <= 0:
                return


def _tokenize(text: Text, snapshot: Snapshot, codec: Codec, work: Path) -> None:
    """Every part that is not on disk yet."""
    parts = _parts(work, codec)
    consumed = parts[-1]["consumed"] if parts else 0
    splitter = Splitter(text.validation)
    with bar("tokenizing", snapshot.bytes) as advance:
        # Documents of finished parts are read again, for the hashes of those held out, but not tokenized again.
        entries = (Entry(number, document, splitter(document)) for number, document in enumerate(_documents(snapshot)))
        for entry in itertools.islice(entries, consumed):
            advance(size(entry.document))
        writer = _Writer(text, codec, work, len(parts))
        try:
            for entry in tokenized(codec, entries):
                writer.add(entry)
                advance(size(entry.document))
            writer.commit()
        finally:
            writer.part.abandon()
    if splitter.dropped:
        print(f"{splitter.dropped} training documents were left out: validation has them", file=sys.stderr)


class _Writer:
    """The part that is being filled, and the record that makes it count."""

    def __init__(self, text: Text, codec: Codec, work: Path, number: int):
        self.text, self.codec, self.work = text, codec, work
        self.sides = text.corpus.sides
        self.consumed = 0
        self._next(number)

    def add(self, entry: Entry) -> None:
        self.consumed = entry.number + 1
        if entry.split is None:
            return
        for side, written, ids in zip(self.sides, entry.document.sides(), entry.ids, strict=True):
            self.part.add(entry.split, side, ids, len(written.encode()))
        if self.part.tokens >= self.text.shard:
            self.commit()

    def commit(self) -> None:
        if self.part.tokens == 0:
            return
        record = {"consumed": self.consumed, "tokenizer": self.codec.sha256, "splits": _plain(self.part.close())}
        atomic.write_json(self.work / "parts" / f"{self.part.number:05d}.json", record)
        self._next(self.part.number + 1)

    def _next(self, number: int) -> None:
        self.part = Part(self.work, number, self.codec.dtype, self.codec.size, self.codec.specials.get("unk"))


def _parts(work: Path, codec: Codec) -> list[dict[str, Any]]:
    records = [atomic.read_json(file) for file in sorted((work / "parts").glob("*.json"))]
    if any(record["tokenizer"] != codec.sha256 for record in records):
        raise ScalingError("mixed tokenizers in unfinished work", file=work, fix="remove it and prepare again")
    return records


def _manifest(text: Text, stamp: Mapping[str, Any], codec: Codec, work: Path) -> Manifest:
    splits: dict[str, dict[str, tuple[Shard, ...]]] = {"train": {}, "validation": {}}
    for record in _parts(work, codec):
        for split, sides in record["splits"].items():
            for side, shard in sides.items():
                splits[split][side] = (*splits[split].get(side, ()), Shard(**shard))
    if not splits["train"]:
        raise ScalingError(
            "the corpus is empty: it has no document to train on",
            key="data.corpus",
            value=text.request["corpus"],
            fix="name files that hold text",
        )
    if not splits["validation"] and text.validation:
        raise ScalingError(
            "no document fell to validation",
            key="data.validation",
            value=text.validation,
            fix="raise it, or add documents",
        )
    return Manifest(
        dtype=codec.dtype.str,
        vocabulary=codec.size,
        specials=codec.specials,
        tokenizer=codec.sha256,
        splits=splits,
        request=text.request,
        stamp=stamp,
        joined=_joined(splits, work),
    )


def _joined(
    splits: Mapping[str, Mapping[str, tuple[Shard, ...]]], work: Path
) -> dict[str, dict[str, tuple[Shard, ...]]] | None:
    """Each side of each split as one shard, by which data are named; None where there is one part alone."""
    names = {split: {side: f"{split}/00000.{side}" for side in sides} for split, sides in splits.items()}
    lone = {split: {side: shards[0].name for side, shards in sides.items()} for split, sides in splits.items()}
    if lone == names and all(len(shards) == 1 for sides in splits.values() for shards in sides.values()):
        return None
    return {
        split: {side: (joined(work, shards, names[split][side]),) for side, shards in sides.items()}
        for split, sides in splits.items()
    }


def _plain(splits: Mapping[str, Mapping[str, Shard]]) -> dict[str, dict[str, Any]]:
    return {split: {side: asdict(shard) for side, shard in sides.items()} for split, sides in splits.items()}


def _documents(snapshot: Snapshot) -> Iterator[Document]:
    with _about("corpus"):
        yield from snapshot.documents()


@contextmanager
def _about(key: str) -> Iterator[None]:
    """Mistakes with their whole key, which those of the corpus have where a tokenizer that learns passes them on."""
    try:
        yield
    except ScalingError as error:
        whole = error.key is None or error.key.startswith("data.")
        raise (error if whole else error.under(f"data.{key}")) from error


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """One preparation of the same data at a time on this machine; the lock dies with whoever holds it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is preparing the same data; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
