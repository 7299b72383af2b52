"""Text: a corpus through a tokenizer, prepared once and then read from memory maps.

Each part of a corpus is tokenized by a job of its own, and a part that is done is not read again.

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
import shutil
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import BelowOne
from scaling.base.standard_error import progress
from scaling.config import schema
from scaling.config.schema import Recipe, piece_of
from scaling.data import rows, store
from scaling.data.batches import in_threads
from scaling.data.codec import Codec
from scaling.data.documents import Corpus, Part, Snapshot, Splitter, size, until
from scaling.data.source import under_data
from scaling.data.store import FORMAT, NAME, TOKENIZER, TRUSTED, PackedSource, PairedSource, Shard, described, digest

_BLOCK = 1 << 20  # bytes of text that are tokenized as one task,
_MANY = 1 << 13  # or fewer where documents are tiny, because each takes some memory of its own
_AHEAD = 3  # tasks under way

_LAYOUT = 1  # of the folder of unfinished work: what another version left there is begun anew

Call = tuple[str, Callable[..., None], tuple[Any, ...]]
"""The name of a job, a function of a module, and its arguments, which are plain."""


class Text:
    """Documents of a corpus as tokens, each followed by `<eos>`, end to end; or, of a corpus of pairs, pair by pair.

    A document is for validation where its publisher marks it so, or else where the hash of its text is below
    `validation` of all hashes: the same for every run, and never one that is trained on.
    """

    def __init__(self, *, corpus: Recipe, tokenizer: Recipe, validation: BelowOne = 0.01):
        self.corpus: Corpus = piece_of("corpus", corpus)
        self.tokenizer: Any = piece_of("tokenizer", tokenizer)
        self.validation = validation

    @property
    def request(self) -> dict[str, Any]:
        """All that decides what is prepared, but for what the corpus holds."""
        return {
            "corpus": described(self.corpus),
            "tokenizer": described(self.tokenizer),
            "validation": self.validation,
        }

    @property
    def key(self) -> str:
        return digest({"format": FORMAT, **self.request})[:16]

    def open(self, split: str, folder: Path) -> PackedSource | PairedSource:
        entry = self.entry(folder)
        if entry is None:
            raise ScalingError(f"the data have not been prepared in {folder}", key="data", fix=store.UNPREPARED)
        if changed := self.changed(entry["stamp"]):
            raise changed
        return store.open_split(folder / entry["fingerprint"], split)

    def entry(self, folder: Path) -> dict[str, Any] | None:
        """What this became, its `fingerprint`, and its `stamp`; None where it has not been prepared."""
        return next(prepared(folder, self.key), None)

    def changed(self, stamp: Mapping[str, Any]) -> ScalingError | None:
        """What is not as a stamp states: a file of the corpus, or a tokenizer that is read from a file."""
        again = "put it back as it was, or run `scaling data prepare` to prepare what it is now"
        file = self.corpus.changed(dict(stamp))
        if file is not None:
            return ScalingError("it has changed since it was prepared", file=file, fix=again)
        if not self.tokenizer.learns and Codec.of(self.tokenizer).sha256 != stamp.get("tokenizer"):
            what, named = "mixed tokenizers: the data were prepared with another", self.request["tokenizer"]
            return ScalingError(what, key="data.tokenizer", value=named.get("path", named["kind"]), fix=again)
        return None


def prepared(folder: Path, key: str = "*") -> Iterator[dict[str, Any]]:
    """The data lines that have been prepared in `folder`: their `fingerprint`, their `stamp`, and their
    `Text.request`. A file that is none of them is passed over.
    """
    keys = {"fingerprint", "stamp", "corpus", "tokenizer", "validation"}
    for file in sorted((folder / "requests").glob(f"{key}.json")):
        with suppress(OSError, ValueError, AttributeError):
            entry = atomic.read_json(file)
            if keys <= entry.keys() and (folder / str(entry["fingerprint"])).is_dir():
                yield entry


# --- preparing ---


def in_turn(jobs: Sequence[Call]) -> None:
    """Do jobs here, one after another."""
    for _, function, arguments in jobs:
        function(*arguments)


def prepare(text: Text, folder: Path, run: Callable[[Sequence[Call]], None] = in_turn) -> Path:
    """The folder that holds `text` prepared: what is there already if it still fits, else made, or made whole. `run`
    returns when all jobs are done, in whatever order and wherever.
    """
    with store.alone(folder, text.key):
        entry = text.entry(folder)
        if entry is None or text.changed(entry["stamp"]) is not None:
            home = _made(text, folder, run)
        else:
            home = folder / entry["fingerprint"]
        store.check_shards(home, store.read_manifest(home))
        return home


def _made(text: Text, folder: Path, run: Callable[[Sequence[Call]], None]) -> Path:
    work = folder / "preparing" / text.key
    snapshot = _snapshot(text, folder, work)
    if not (work / NAME).exists():
        codec = _codec(text, snapshot, folder, work)
        _tokenize(text, snapshot, work, run)
        changed = text.corpus.changed(snapshot.stamp)
        refuse(changed is not None, "it changed while it was read", "run the same command again", file=changed)
        records = _records(work)
        if dropped := sum(record["dropped"] for record in records):
            print(f"{dropped} training documents were left out: validation has them", file=sys.stderr)
        atomic.write_json(work / TRUSTED, {name: as_ for record in records for name, as_ in record["files"].items()})
        store.seal(work, store.manifest_of(codec, _splits(text, records), text.request, snapshot.stamp))
    # One rename completes it. The pointer comes first: alone it has no effect, and the work is found again.
    home = folder / store.read_manifest(work)["fingerprint"]
    entry = {"fingerprint": home.name, "stamp": snapshot.stamp, **text.request}
    atomic.write_json(folder / "requests" / f"{text.key}.json", entry)
    if home.exists():
        store.discard(work)
    else:
        shutil.rmtree(work / "parts", ignore_errors=True)
        for partial in work.rglob(f"{atomic.TEMPORARY}*"):  # what a kill left of a file that was being written
            partial.unlink()
        work.rename(home)
        atomic.flush_folder(folder)
    return home


def _snapshot(text: Text, folder: Path, work: Path) -> Snapshot:
    """The snapshot with which the work began, if the corpus is still what it was; or a new one, and no work."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        plan = atomic.read_json(work / "plan.json")
        _records(work)  # refuses one that a disk has damaged
        if plan.pop("layout") == _LAYOUT and text.changed(plan["stamp"]) is None:
            return Snapshot(text.corpus, **plan)
    store.discard(work)
    with under_data("data.corpus"):
        taken = text.corpus.snapshot(folder)
    # What prepared data depend on besides the request: the corpus, and a tokenizer that is read from a file.
    now = {} if text.tokenizer.learns else {"tokenizer": Codec.of(text.tokenizer).sha256}
    plan = {"stamp": {**taken.stamp, **now}, "parts": taken.parts, "limit": taken.limit}
    atomic.write_json(work / "plan.json", {"layout": _LAYOUT, **plan})
    return Snapshot(text.corpus, **plan)


def _codec(text: Text, snapshot: Snapshot, folder: Path, work: Path) -> Codec:
    """The tokenizer: that of the work so far, or one learned before from the same text, or a new one."""
    file = folder / "tokenizers" / f"{digest({**text.request, 'stamp': snapshot.stamp})[:16]}.json"
    before = [each for each in (work / TOKENIZER, file) if each.exists()]
    with under_data("data.tokenizer"):
        codec = Codec.load(before[0]) if before else Codec.of(text.tokenizer, _sample(text, snapshot))
    for each in (file, work / TOKENIZER):
        codec.save(each)
    return codec


def _sample(text: Text, snapshot: Snapshot) -> Iterator[str]:
    """Training text for the tokenizer, up to its `sample`."""
    splitter = Splitter(text.validation)
    with under_data("data.corpus"):
        training = (document for document in snapshot.documents() if splitter(document) == "train")
        for document in until(training, text.tokenizer.sample):
            yield from document.sides().values()


def _splits(text: Text, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Shard]]]:
    """The shards of all parts, by split and side."""
    splits: dict[str, dict[str, list[Shard]]] = {"train": {}, "validation": {}}
    for shard in chain.from_iterable(record["shards"] for record in records):
        split, _, side = shard["name"].replace(".", "/").split("/")
        splits[split].setdefault(side, []).append(shard)
    what = "every document fell to validation" if splits["validation"] else "the corpus is empty"
    refuse(
        not splits["train"],
        f"{what}: there is no document to train on",
        "name files that hold text",
        key="data.corpus",
        value=text.request["corpus"],
    )
    what, fix = "no document fell to validation", "raise it, or add documents"
    refuse(not splits["validation"] and text.validation, what, fix, key="data.validation", value=text.validation)
    return splits


def _tokenize(text: Text, snapshot: Snapshot, work: Path, run: Callable[[Sequence[Call]], None]) -> None:
    """Have the parts tokenized that are not on disk yet: held-out ones first, because the others leave out what is in
    them. Where a limit holds, a part begins when it is known how much text those before it have.
    """
    left, (held_out, others) = snapshot.limit, snapshot.numbers()
    for numbers in (held_out, others) if left is None else (held_out, *([number] for number in others)):
        limit = None if numbers is held_out else left
        if limit is not None and limit <= 0:
            return
        jobs: list[Call] = []
        for number in numbers:
            if not _record(work, number).exists():
                arguments = text.request, dict(snapshot.parts[number]), str(work.absolute()), number, limit
                jobs.append((f"part {number + 1} of {len(snapshot.parts)}", tokenize, arguments))
        if jobs:
            run(jobs)
        if limit is not None:
            left = limit - atomic.read_json(_record(work, numbers[0]))["bytes"]


def _record(work: Path, number: int) -> Path:
    return work / "parts" / f"{number:05d}.json"


def _records(work: Path) -> list[dict[str, Any]]:
    return [atomic.read_json(file) for file in sorted((work / "parts").glob("*.json"))]


# --- one part: a job ---


def tokenize(request: Mapping[str, Any], part: Part, folder: str, number: int, limit: int | None = None) -> None:
    """Write the shards of a part, up to `limit` bytes of text, and last its record, by which they count."""
    work = Path(folder)
    text: Text = schema.build("data", {"kind": "Text", **request})
    codec, advance = Codec.load(work / TOKENIZER), progress(f"part {number + 1}", part.get("bytes"))
    hashes = (np.fromfile(file, np.uint64).tolist() for file in sorted((work / "parts").glob("*.hashes")))
    splitter = Splitter(text.validation, set(chain.from_iterable(hashes)))
    read, shards = 0, dict[tuple[str, str], ShardWriter]()

    def encoded(block: Block) -> tuple[int, list[tuple[tuple[str, str], list[str], list[array]]]]:
        return block[0], [(place, texts, codec.encode(texts)) for place, texts in block[1].items()]

    with ExitStack() as files:
        # The tokenizer releases the interpreter's lock and spreads a block over the threads it has; a few threads keep
        # it busy while this one turns its results into arrays.
        for count, sides in in_threads(encoded, _blocks(text, part, splitter, limit), _AHEAD, _AHEAD):
            read += count
            advance(count)
            for (split, side), texts, ids in sides:
                if (split, side) not in shards:
                    shards[split, side] = ShardWriter(work, f"{split}/{number:05d}.{side}", codec, files)
                shards[split, side].add(texts, ids)
        closed = [shard.close() for shard in shards.values()]
    if part.get("split") == "validation":
        atomic.write(work / "parts" / f"{number:05d}.hashes", np.array(sorted(splitter.held_out), np.uint64).tobytes())
    stamps = {name: [*rows.seen(work / name), sha256] for name, sha256 in store.hashes(closed).items()}
    record = {"shards": closed, "bytes": read, "dropped": splitter.dropped, "files": stamps}
    atomic.write_json(_record(work, number), record)


Block = tuple[int, dict[tuple[str, str], list[str]]]
"""The bytes of all that was read, and the texts of each split and side."""


def _blocks(text: Text, part: Part, splitter: Splitter, limit: int | None) -> Iterator[Block]:
    texts: dict[tuple[str, str], list[str]] = {}
    read = count = 0
    with under_data("data.corpus"):
        for document in until(text.corpus.read(part), limit):
            if split := splitter(document):
                for side, written in document.sides().items():
                    texts.setdefault((split, side), []).append(written)
                    count += 1
            read += size(document)
            if read >= _BLOCK or count >= _MANY:
                yield read, texts
                texts, read, count = {}, 0, 0
    yield read, texts


class ShardWriter:
    """A shard that is being written, under a name of its own until it is whole: a worker that outlives its command may
    write the same. Where `files` closes, its file has its name, or is removed if it is not whole.
    """

    def __init__(self, work: Path, name: str, codec: Codec, files: ExitStack):
        self.work, self.name, self.codec = work, name, codec
        self.file = files.enter_context(atomic.writing(work / f"{name}.tokens"))
        self.hash, self.ends = hashlib.sha256(), array("Q", [0])
        self.bytes = self.largest = self.unknown = 0

    def add(self, texts: Sequence[str], documents: Sequence[array]) -> None:
        """The tokens of documents, which encode these texts; `eos` follows each."""
        joined, before, eos = array(self.codec.dtype.char), self.ends[-1], self.codec.specials["eos"]
        for document in documents:
            joined.extend(document)
            joined.append(eos)
            self.ends.append(before + len(joined))
        ids = np.frombuffer(joined, joined.typecode).astype(self.codec.dtype, copy=False)
        self.file.write(ids.data)
        self.hash.update(ids.data)
        self.bytes += sum(len(text.encode()) for text in texts)
        self.largest = max(self.largest, int(ids.max()))
        self.unknown += int((ids == self.codec.specials.get("unk", -1)).sum())

    def close(self) -> Shard:
        """Write the ends of the documents; returns the counts and hashes of the shard."""
        ends = np.array(self.ends[1:], "<u8").tobytes()
        atomic.write(self.work / f"{self.name}.ends", ends)
        counts = {"documents": len(self.ends) - 1, "tokens": self.ends[-1], "bytes": self.bytes}
        hashes = {"tokens_sha256": self.hash.hexdigest(), "ends_sha256": hashlib.sha256(ends).hexdigest()}
        return {"name": self.name, **counts, "unknown": self.unknown, "largest": self.largest, **hashes}
