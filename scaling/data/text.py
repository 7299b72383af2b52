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
import itertools
import shutil
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse, under
from scaling.base.numbers import BelowOne
from scaling.base.standard_error import progress
from scaling.config import schema
from scaling.config.schema import Recipe
from scaling.data import store
from scaling.data.batches import in_threads
from scaling.data.codec import Codec
from scaling.data.documents import Corpus, Part, Snapshot, Splitter, is_held_out_part, size, until
from scaling.data.source import check_split, under_data
from scaling.data.store import FORMAT, NAME, TOKENIZER, TRUSTED, Manifest, PackedSource, PairedSource, Shard, digest

_BLOCK = 1 << 20  # bytes of text that are tokenized as one task,
_MANY = 1 << 13  # or fewer where documents are tiny, because each takes some memory of its own
_AHEAD = 3  # tasks under way

Call = tuple[str, Callable[..., None], tuple[Any, ...]]
"""The name of a job, a function of a module, and its arguments, which are plain."""


class Text:
    """Documents of a corpus as tokens, each followed by `<eos>`, end to end; or, of a corpus of pairs, pair by pair.

    A document is for validation where its publisher marks it so, or else where the hash of its text is below
    `validation` of all hashes: the same for every run, and never one that is trained on.
    """

    def __init__(self, *, corpus: Recipe, tokenizer: Recipe, validation: BelowOne = 0.01):
        with under("corpus"):
            self.corpus: Corpus = corpus()
        with under("tokenizer"):
            self.tokenizer: Any = tokenizer()
        self.validation = validation

    @property
    def request(self) -> dict[str, Any]:
        """All that decides what is prepared, but for what the corpus holds."""
        return {
            "corpus": {"kind": type(self.corpus).__name__, **vars(self.corpus)},
            "tokenizer": {"kind": type(self.tokenizer).__name__, **vars(self.tokenizer)},
            "validation": self.validation,
        }

    @property
    def key(self) -> str:
        return digest({"format": FORMAT, **self.request})[:16]

    def open(self, split: str, folder: Path) -> PackedSource | PairedSource:
        check_split(split)
        entry = self.entry(folder)
        if entry is None:
            raise ScalingError(f"the data have not been prepared in {folder}", key="data", fix=store.UNPREPARED)
        if changed := self.changed(entry["stamp"]):
            raise changed
        return store.open_split(folder / entry["fingerprint"], split)

    def entry(self, folder: Path) -> dict[str, Any] | None:
        """What this became, its `fingerprint`, and its `stamp`; None where it has not been prepared."""
        return next(_entries(folder, [folder / "requests" / f"{self.key}.json"]), None)

    def changed(self, stamp: Mapping[str, Any]) -> ScalingError | None:
        """What is not as a stamp states: a file of the corpus, or a tokenizer that is read from a file."""
        again = "put it back as it was, or run `scaling data prepare` to prepare what it is now"
        file = self.corpus.changed(dict(stamp))
        if file is not None:
            return ScalingError("it has changed since it was prepared", file=file, fix=again)
        if not self.tokenizer.learns and Codec.of(self.tokenizer).sha256 != stamp.get("tokenizer"):
            what, named = "mixed tokenizers: the data were prepared with another", self.request["tokenizer"].get("path")
            return ScalingError(what, key="data.tokenizer", value=named or type(self.tokenizer).__name__, fix=again)
        return None


def prepared(folder: Path) -> list[dict[str, Any]]:
    """The data lines that have been prepared in `folder`: their `fingerprint`, and what `Text.request` was."""
    entries = _entries(folder, sorted((folder / "requests").glob("*.json")))
    return [{key: value for key, value in entry.items() if key != "stamp"} for entry in entries]


def _entries(folder: Path, files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The records of requests whose data are there. Other files, or those of another version, are passed over."""
    for file in files:
        with suppress(OSError, ValueError):
            entry = atomic.read_json(file)
            keys = {"fingerprint", "stamp", "corpus", "tokenizer", "validation"}
            if isinstance(entry, dict) and keys <= entry.keys() and (folder / str(entry["fingerprint"])).is_dir():
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
        Manifest.read(home).check(home)
        return home


def _made(text: Text, folder: Path, run: Callable[[Sequence[Call]], None]) -> Path:
    work = folder / "preparing" / text.key
    snapshot = _snapshot(text, folder, work)
    if not (work / NAME).exists():
        codec = _codec(text, snapshot, folder, work)
        _tokenize(snapshot, text, work, run)
        changed = text.corpus.changed(snapshot.stamp)
        refuse(changed is not None, "it changed while it was read", "run the same command again", file=changed)
        records = [atomic.read_json(file) for file in sorted((work / "parts").glob("*.json"))]
        if dropped := sum(record["dropped"] for record in records):
            print(f"{dropped} training documents were left out: validation has them", file=sys.stderr)
        atomic.write_json(work / TRUSTED, {name: as_ for record in records for name, as_ in record["files"].items()})
        Manifest.of(codec, _splits(text, records), text.request, snapshot.stamp).write(work)
    # One rename completes it. The pointer comes first: alone it has no effect, and the work is found again.
    home = folder / Manifest.read(work).fingerprint
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
        if plan["layout"] == LAYOUT and text.changed(plan["stamp"]) is None:
            return Snapshot(text.corpus, plan["stamp"], plan["parts"], plan["limit"])
    store.discard(work)
    with under_data("data.corpus"):
        taken = text.corpus.snapshot(folder)
    # What prepared data depend on besides the request: the corpus, and a tokenizer that is read from a file.
    now = {} if text.tokenizer.learns else {"tokenizer": Codec.of(text.tokenizer).sha256}
    snapshot = Snapshot(text.corpus, {**taken.stamp, **now}, taken.parts, taken.limit)
    plan = {"layout": LAYOUT, "stamp": snapshot.stamp, "parts": snapshot.parts, "limit": snapshot.limit}
    atomic.write_json(work / "plan.json", plan)
    return snapshot


LAYOUT = 1  # of the folder of unfinished work: what another version left there is begun anew


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
    for shard in itertools.chain.from_iterable(record["shards"] for record in records):
        split, _, name = shard["name"].partition("/")
        splits[split].setdefault(name.partition(".")[2], []).append(shard)
    what = "the corpus is empty: it has no document to train on"
    refuse(not splits["train"], what, "name files that hold text", key="data.corpus", value=text.request["corpus"])
    what, fix = "no document fell to validation", "raise it, or add documents"
    refuse(not splits["validation"] and text.validation, what, fix, key="data.validation", value=text.validation)
    return splits


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

    def encoded(block: Block) -> tuple[int, dict[str, tuple[int, list[array]]]]:
        texts = block[1].items()
        return block[0], {name: (sum(len(one.encode()) for one in of), codec.encode(of)) for name, of in texts}

    shards: dict[str, ShardWriter] = {}
    read = 0
    with ExitStack() as unfinished:
        # The tokenizer releases the interpreter's lock and spreads a block over the threads it has; a few threads keep
        # it busy while this one turns its results into arrays.
        for count, documents in in_threads(encoded, _blocks(text, part, splitter, limit), _AHEAD, _AHEAD):
            read += count
            advance(count)
            for name, (bytes_, ids) in documents.items():
                if name not in shards:
                    shards[name] = ShardWriter(work, name.format(number), codec)
                    unfinished.callback(shards[name].discard)
                shards[name].add(ids, bytes_)
        closed = [shard.close() for shard in shards.values()]
    if is_held_out_part(part):
        atomic.write(work / "parts" / f"{number:05d}.hashes", np.array(sorted(splitter.held_out), np.uint64).tobytes())
    names = [f"{shard.name}.{ending}" for shard in shards.values() for ending in ("tokens", "ends")]
    files = {name: store.seen(work / name) for name in names}
    record = {"shards": closed, "bytes": read, "dropped": splitter.dropped, "files": files}
    atomic.write_json(_record(work, number), record)


def _record(work: Path, number: int) -> Path:
    return work / "parts" / f"{number:05d}.json"


Block = tuple[int, dict[str, list[str]]]
"""The bytes of all that was read, and the texts for each shard, by its name without the part's number."""


def _blocks(text: Text, part: Part, splitter: Splitter, limit: int | None) -> Iterator[Block]:
    texts: dict[str, list[str]] = {}
    read = count = 0
    with under_data("data.corpus"):
        for document in until(text.corpus.read(part), limit):
            if split := splitter(document):
                for side, written in zip(text.corpus.sides, document.sides()):
                    texts.setdefault(f"{split}/{{:05d}}.{side}", []).append(written)
                    count += 1
            read += size(document)
            if read >= _BLOCK or count >= _MANY:
                yield read, texts
                texts, read, count = {}, 0, 0
    yield read, texts


class ShardWriter:
    """A shard that is being written, and counts once it is closed."""

    def __init__(self, folder: Path, name: str, codec: Codec):
        self.name, self.codec, self.path = name, codec, folder / f"{name}.tokens"
        self.path.parent.mkdir(exist_ok=True)
        self.partial = atomic.temporary(self.path)
        self.file, self.hash, self.ends = self.partial.open("wb"), hashlib.sha256(), array("Q")
        self.tokens = self.bytes = self.largest = self.unknown = 0

    def add(self, documents: Sequence[array], size: int) -> None:
        """The tokens of documents, which encode `size` bytes of text; `eos` follows each."""
        joined, eos = array(self.codec.dtype.char), self.codec.specials["eos"]
        for document in documents:
            joined.extend(document)
            joined.append(eos)
            self.ends.append(self.tokens + len(joined))
        ids = np.frombuffer(joined, joined.typecode)
        content = ids.astype(self.codec.dtype, copy=False).tobytes()
        self.file.write(content)
        self.hash.update(content)
        self.tokens, self.bytes = self.tokens + len(ids), self.bytes + size
        self.largest = max(self.largest, int(ids.max()))
        self.unknown += int((ids == self.codec.specials.get("unk", -1)).sum())

    def close(self) -> Shard:
        """Put everything on the disk."""
        atomic.flush(self.file)
        self.file.close()
        ends = np.array(self.ends, dtype="<u8").tobytes()
        self.partial.replace(self.path)
        atomic.write(self.path.with_suffix(".ends"), ends)
        counts = {name: getattr(self, name) for name in ("tokens", "bytes", "unknown", "largest")}
        hashes = {"tokens_sha256": self.hash.hexdigest(), "ends_sha256": hashlib.sha256(ends).hexdigest()}
        return {"name": self.name, "documents": len(self.ends), **counts, **hashes}

    def discard(self) -> None:
        """Leave nothing of a part that will not be finished; a full disk refuses what is still to be written again."""
        with suppress(OSError):
            self.file.close()
        self.partial.unlink(missing_ok=True)
