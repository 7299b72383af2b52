"""Text: a corpus through a tokenizer, prepared once and then read from memory maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, under
from scaling.config.schema import BelowOne, Recipe
from scaling.data.codec import Codec
from scaling.data.documents import Corpus, Snapshot
from scaling.data.source import check_split
from scaling.data.store import FORMAT, PackedSource, PairedSource, digest, open_split


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
            fix = "run `scaling data prepare` with the same data= (or --model CONFIG) and runs= first"
            raise ScalingError(f"the data have not been prepared in {folder}", key="data", fix=fix)
        if changed := self.changed(entry["stamp"]):
            raise changed
        return open_split(folder / entry["fingerprint"], split)

    def entry(self, folder: Path) -> dict[str, Any] | None:
        """What this became, its `fingerprint`, and its `stamp`; None where it has not been prepared."""
        return next(_entries(folder, [folder / "requests" / f"{self.key}.json"]), None)

    def enter(self, folder: Path, fingerprint: str, stamp: Mapping[str, Any]) -> None:
        """Record what this became, and of which corpus: others of equal text have the same fingerprint."""
        file = folder / "requests" / f"{self.key}.json"
        atomic.write_json(file, {"fingerprint": fingerprint, "stamp": stamp, **self.request})

    def stamp(self, snapshot: Snapshot) -> dict[str, Any]:
        """What prepared data depend on besides the request: the corpus, and a tokenizer that is read from a file."""
        now = {} if self.tokenizer.learns else {"tokenizer": Codec.of(self.tokenizer).sha256}
        return {**snapshot.stamp, **now}

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
    """The records of `Text.enter` whose data are there. Other files, or those of another version, are passed over."""
    for file in files:
        with suppress(OSError, ValueError):
            entry = atomic.read_json(file)
            keys = {"fingerprint", "stamp", "corpus", "tokenizer", "validation"}
            if isinstance(entry, dict) and keys <= entry.keys() and (folder / str(entry["fingerprint"])).is_dir():
                yield entry
