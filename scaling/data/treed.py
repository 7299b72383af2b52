"""Prepared Python sources whose tokens have places in the syntax trees of their documents.

FINGERPRINT/trees/train-3.12.npy    [tokens 3] int32, as `Batch.tree`, by the parser of that Python
FINGERPRINT/trees/train-3.12.json   its SHA-256, and how many documents have a tree
"""

from __future__ import annotations

import hashlib
import io
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scaling import atomic
from scaling.data.batches import Stream
from scaling.data.codec import Codec
from scaling.data.progress import bar
from scaling.data.python_tree import places
from scaling.data.source import Rows
from scaling.data.store import PackedSource
from scaling.data.tree import OUTSIDE
from scaling.errors import ScalingError


class TreedSource(PackedSource):
    """Windows whose tokens keep the places that they have in the tree of their whole document."""

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint}.{self.record['sha256'][:8]}"  # of the same prepared folder

    @cached_property
    def record(self) -> dict[str, Any]:
        return atomic.read_json(self.file.with_suffix(".json"))

    @property
    def file(self) -> Path:
        return self.folder / "trees" / f"{self.split}-{sys.version_info.major}.{sys.version_info.minor}.npy"

    @cached_property
    def _trees(self) -> Stream:
        return Stream([np.load(self.file, mmap_mode="r")])

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        read = super().read(rows, length, documents=documents)
        tree = np.empty((len(rows), length, 3), np.int32)
        self._trees.fill(tree, self._trees.places(np.asarray(rows, np.int64) * length))
        return Rows(read.tokens, read.documents, tree=tree)


def treed(source: PackedSource) -> TreedSource:
    """The same tokens with their trees, which are made the first time."""
    opened = TreedSource(source.folder, source.split, source.manifest)
    if not opened.file.with_suffix(".json").exists():
        _make(opened)
    if source.tokens and not opened.record["documents"]:
        raise ScalingError(
            "no document of the corpus is Python that this interpreter parses, as its tokens spell it",
            key="trees",
            value="python",
            fix="take data=python, and a tokenizer that keeps all characters, as ByteBPE",
        )
    return opened


def _make(source: TreedSource) -> None:
    trees, count, start = np.empty((source.tokens, 3), np.int32), 0, 0
    trees[:] = OUTSIDE
    with bar("parsing Python", source.tokens) as advance:
        for _, tokens in source.documents():
            tree = _tree(source.codec, tokens[:-1])  # behind them is eos
            if tree is not None:
                trees[start : start + len(tree)] = tree
                count += 1
            start += len(tokens)
            advance(len(tokens))
    content = io.BytesIO()
    np.save(content, trees)
    atomic.write(source.file, content.getvalue())
    record = {"sha256": hashlib.sha256(trees.tobytes()).hexdigest(), "documents": count}
    atomic.write_json(source.file.with_suffix(".json"), record)


def _tree(codec: Codec, tokens: np.ndarray) -> np.ndarray | None:
    """The places of a document's tokens; None where the tokens do not spell Python."""
    text = codec.decode(tokens)
    encoding = codec.tokenizer.encode(text, add_special_tokens=False)
    if not len(tokens) or not np.array_equal(encoding.ids, tokens):
        return None
    return places(text, np.array(encoding.offsets, np.int64)[:, 1])
