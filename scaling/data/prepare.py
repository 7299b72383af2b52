"""Preparing: a corpus read once, tokenized on all cores, and written part by part: a kill costs one part at most.

preparing/KEY/          the work so far; nothing reads tokens from here
    stamp.json          what the corpus was when the work began
    tokenizer.json
    parts/00003.json    written last, once the shards of part 3 are on disk
requests/KEY.json       which fingerprint a data line became, and what its files were then
FINGERPRINT/            the whole, put in place by one rename
"""

from __future__ import annotations

import itertools
import shutil
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.data.codec import Codec
from scaling.data.documents import Document, Snapshot, Splitter, size
from scaling.data.progress import bar
from scaling.data.shards import NAME, TOKENIZER, Manifest, Shard, ShardWriter, alone, digest, discard
from scaling.data.text import Text
from scaling.errors import ScalingError

_BLOCK = 1 << 20  # bytes of text that are tokenized as one task,
_MANY = 1 << 13  # or fewer where documents are tiny, because each takes some memory of its own
_AHEAD = 3  # tasks under way


def prepare(text: Text, folder: Path) -> Path:
    """The folder that holds `text` prepared: what is there already if it still fits, else made, or made whole."""
    with alone(folder, text.key):
        home = text.home(folder)
        if home is not None and text.outdated(folder) is None:
            Manifest.read(home).check(home)
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
            Manifest.of(work, codec, _splits(text, codec, work), text.request, stamp).write(work)
        return _publish(text, stamp, folder, work)


def _begin(work: Path, stamp: Mapping[str, Any]) -> None:
    """Work of before goes on only if the corpus is what it was then."""
    file = work / "stamp.json"
    if file.exists() and digest(atomic.read_json(file)) != digest(stamp):
        discard(work)
    if not file.exists():
        atomic.write_json(file, stamp)
    for partial in work.glob(".*"):  # what a kill left of a file that was being written
        partial.unlink()


def _publish(text: Text, stamp: Mapping[str, Any], folder: Path, work: Path) -> Path:
    """One rename completes it. The pointer comes first: alone it has no effect, and the work is found again."""
    fingerprint = Manifest.read(work).fingerprint
    home = folder / fingerprint
    text.enter(folder, fingerprint, stamp)
    if home.exists():  # the same data, perhaps in shards of another size
        discard(work)
    else:
        shutil.rmtree(work / "parts", ignore_errors=True)
        work.rename(home)
        atomic.flush_folder(folder)
    Manifest.read(home).check(home)
    return home


def _codec(text: Text, snapshot: Snapshot, folder: Path, work: Path) -> Codec:
    """The tokenizer: that of the work so far, or one learned before from the same text, or a new one."""
    file = work / TOKENIZER
    if not file.exists():
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


@dataclass(frozen=True)
class Entry:
    """A document on its way: where the corpus has it, its split (None: it is left out) and its tokens by side."""

    number: int
    document: Document
    split: str | None
    ids: tuple[array, ...] = ()


def _tokenize(text: Text, snapshot: Snapshot, codec: Codec, work: Path) -> None:
    """Every part that is not on disk yet."""
    parts = _parts(work, codec)
    consumed = parts[-1]["consumed"] if parts else 0
    splitter = Splitter(text.validation)
    writer = _Writer(text, codec, work, len(parts))
    with bar("tokenizing", snapshot.bytes) as advance:
        # Documents of finished parts are read again, for the hashes of those held out, but not tokenized again.
        entries = (Entry(number, document, splitter(document)) for number, document in enumerate(_documents(snapshot)))
        for entry in itertools.islice(entries, consumed):
            advance(size(entry.document))
        try:
            for entry in _tokenized(codec, entries):
                writer.add(entry)
                advance(size(entry.document))
            writer.commit()
        finally:
            for shard in writer.shards.values():  # of a part that will not be finished
                shard.file.close()
    if splitter.dropped:
        print(f"{splitter.dropped} training documents were left out: validation has them", file=sys.stderr)


def _tokenized(codec: Codec, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Entries in their order with their tokens, some blocks of them ahead of whoever asks.

    The tokenizer releases the interpreter's lock and spreads a block over all cores by itself; a few threads keep it
    busy while others turn its results into arrays. No process is started and no text is copied to another.
    """
    with ThreadPoolExecutor(_AHEAD) as pool:
        pending: deque[Future[list[Entry]]] = deque()
        for block in _blocks(entries):
            pending.append(pool.submit(_encoded, codec, block))
            if len(pending) == _AHEAD:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


def _blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    block: list[Entry] = []
    characters = 0
    for entry in entries:
        block.append(entry)
        characters += size(entry.document)
        if characters >= _BLOCK or len(block) == _MANY:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _encoded(codec: Codec, block: list[Entry]) -> list[Entry]:
    sides = [entry.document.sides() if entry.split else () for entry in block]
    ids = iter(codec.encode(list(itertools.chain.from_iterable(sides))))
    done = []
    for entry, written in zip(block, sides, strict=True):
        taken = tuple(itertools.islice(ids, len(written)))
        for side in taken:
            side.append(codec.specials["eos"])
        done.append(Entry(entry.number, entry.document, entry.split, taken))
    return done


class _Writer:
    """The part that is being filled: consecutive documents, with a shard for each split and side. A record makes it
    count.
    """

    def __init__(self, text: Text, codec: Codec, work: Path, number: int):
        self.text, self.codec, self.work, self.number = text, codec, work, number
        self.shards: dict[tuple[str, str], ShardWriter] = {}
        self.consumed = self.tokens = 0

    def add(self, entry: Entry) -> None:
        self.consumed = entry.number + 1
        if entry.split is None:
            return
        for side, written, ids in zip(self.text.corpus.sides, entry.document.sides(), entry.ids, strict=True):
            key = entry.split, side
            if key not in self.shards:
                self.shards[key] = ShardWriter(self.work, f"{entry.split}/{self.number:05d}.{side}", self.codec)
            self.shards[key].add(ids, len(written.encode()))
            self.tokens += len(ids)
        if self.tokens >= self.text.shard:
            self.commit()

    def commit(self) -> None:
        if self.tokens == 0:
            return
        splits: dict[str, dict[str, Any]] = {}
        for (split, side), shard in self.shards.items():
            splits.setdefault(split, {})[side] = asdict(shard.close())
        for split in splits:
            atomic.flush_folder(self.work / split)
        record = {"consumed": self.consumed, "tokenizer": self.codec.sha256, "splits": splits}
        atomic.write_json(self.work / "parts" / f"{self.number:05d}.json", record)
        self.shards, self.tokens, self.number = {}, 0, self.number + 1


def _parts(work: Path, codec: Codec) -> list[dict[str, Any]]:
    records = [atomic.read_json(file) for file in sorted((work / "parts").glob("*.json"))]
    if any(record["tokenizer"] != codec.sha256 for record in records):
        raise ScalingError("mixed tokenizers in unfinished work", file=work, fix="remove it and prepare again")
    return records


def _splits(text: Text, codec: Codec, work: Path) -> dict[str, dict[str, tuple[Shard, ...]]]:
    """The shards of all parts, by split and side."""
    splits: dict[str, dict[str, tuple[Shard, ...]]] = {"train": {}, "validation": {}}
    for record in _parts(work, codec):
        for split, sides in record["splits"].items():
            for side, shard in sides.items():
                splits[split][side] = (*splits[split].get(side, ()), Shard(**shard))
    if not splits["train"]:
        what, fix = "the corpus is empty: it has no document to train on", "name files that hold text"
        raise ScalingError(what, key="data.corpus", value=text.request["corpus"], fix=fix)
    if not splits["validation"] and text.validation:
        what, fix = "no document fell to validation", "raise it, or add documents"
        raise ScalingError(what, key="data.validation", value=text.validation, fix=fix)
    return splits


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
