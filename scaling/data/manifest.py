"""Manifest: what a folder of prepared tokens holds, and the hashes by which it is known to hold it.

FINGERPRINT/manifest.json
FINGERPRINT/tokenizer.json
FINGERPRINT/train/00000.text.tokens       little-endian uint16 or uint32, every document followed by <eos>
FINGERPRINT/train/00000.text.ends         little-endian uint64, where each document ends in that file
FINGERPRINT/train/00000.source.tokens …   the other side, where documents are pairs
FINGERPRINT/validation/…
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError

FORMAT = 1
NAME = "manifest.json"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Shard:
    """A file of tokens and the file of its documents' ends."""

    name: str  # within the folder, without the endings .tokens and .ends
    tokens: int
    documents: int
    bytes: int  # of the text, in UTF-8
    unknown: int  # tokens <unk>
    largest: int  # token id
    tokens_sha256: str
    ends_sha256: str

    def files(self, folder: Path) -> tuple[Path, Path]:
        return folder / f"{self.name}.tokens", folder / f"{self.name}.ends"


@dataclass(frozen=True)
class Manifest:
    """What lies in a folder: its shards by split and side, what tokenizer made them, and where the text came from."""

    dtype: str
    vocabulary: int
    specials: Mapping[str, int]
    tokenizer: str  # SHA-256 of tokenizer.json
    splits: Mapping[str, Mapping[str, tuple[Shard, ...]]]
    request: Mapping[str, Any]  # the data line that was prepared first; others of equal text share the folder
    stamp: Mapping[str, Any]  # what its corpus was when it was read
    dropped: int = 0  # training documents left out because validation has them
    # What each side of a split would be as one shard; None where it is one, and of data prepared before there was this.
    joined: Mapping[str, Mapping[str, tuple[Shard, ...]]] | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of the tokens and of what they mean, whatever data line, machine or size of shards they come from."""
        return self._digest(self.splits if self.joined is None else self.joined)

    @property
    def layout(self) -> str:
        """The same hash of the shards as they lie in the folder."""
        return self._digest(self.splits)

    def _digest(self, splits: Mapping[str, Mapping[str, tuple[Shard, ...]]]) -> str:
        plain = asdict(replace(self, splits=splits))
        kept = {key: plain[key] for key in ("dtype", "vocabulary", "specials", "tokenizer", "splits")}
        return digest({"format": FORMAT, **kept})[:16]

    def write(self, folder: Path) -> None:
        plain = asdict(self)
        if self.joined is None:
            del plain["joined"]
        else:
            plain["layout"] = self.layout
        atomic.write_json(folder / NAME, {"format": FORMAT, "fingerprint": self.fingerprint, **plain})

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        file = folder / NAME
        try:
            entries = atomic.read_json(file)
            fingerprint = entries.pop("fingerprint")
            if entries.pop("format") != FORMAT:
                raise ScalingError("it was prepared by another version", file=file, fix=_AGAIN)
            layout = entries.pop("layout", None)
            splits, joined = _shards(entries.pop("splits")), entries.pop("joined", None)
            manifest = cls(splits=splits, joined=None if joined is None else _shards(joined), **entries)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ScalingError(f"the manifest is damaged: {error}", file=file, fix=_AGAIN) from error
        if manifest.fingerprint != fingerprint or layout not in (None, manifest.layout) or (joined and layout is None):
            raise ScalingError("the manifest was altered: its fingerprint does not fit", file=file, fix=_AGAIN)
        return manifest

    def shards(self) -> list[Shard]:
        return [shard for sides in self.splits.values() for shards in sides.values() for shard in shards]

    def count(self, split: str, what: str) -> int:
        """The sum of tokens, bytes or unknown over both sides of a split, or its number of documents."""
        sides = self.splits.get(split, {})
        if what == "documents":
            return sum(shard.documents for shard in sides.get("text", ()))
        return sum(getattr(shard, what) for shards in sides.values() for shard in shards)


def _shards(plain: Mapping[str, Any]) -> dict[str, dict[str, tuple[Shard, ...]]]:
    return {
        split: {side: tuple(Shard(**shard) for shard in shards) for side, shards in sides.items()}
        for split, sides in plain.items()
    }


_AGAIN = "remove the folder and run `scaling data prepare` again"


def digest(tree: Any) -> str:
    """SHA-256 of a plain tree, the same on every machine."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
