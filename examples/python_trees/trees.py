"""Your own data with places of tokens in a tree: Python sources, read by Python's parser.

The position Syntax reads `Rows.tree`: the depth of the deepest node around a token, the node's number when the tree is
read from the root downwards, and the number after its last descendant.

FINGERPRINT/trees/train-3.12.npy    [tokens 3] int32, by the parser of that Python
FINGERPRINT/trees/train-3.12.json   its SHA-256, and the number of documents with a tree
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import sys
import warnings
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError
from scaling.data.batches import Stream
from scaling.data.codec import Codec
from scaling.data.source import Rows
from scaling.data.store import PackedSource
from scaling.data.task.example import OUTSIDE
from scaling.data.text import Text

NODES = ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # as the parser counts: a form feed ends no line


class PythonTrees(Text):
    """Text whose tokens have places in the syntax tree of their document. Documents that do not parse have no
    tree.
    """

    slot = "data"

    def open(self, split: str, folder: Path) -> PackedSource:
        source = super().open(split, folder)
        assert isinstance(source, PackedSource), "its documents are not pairs"
        return TreedSource(source.folder, source.split, source.manifest).made()


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
        self._trees.fill(tree, np.asarray(rows, np.int64) * length)
        return Rows(read.tokens, read.documents, tree=tree)

    def made(self) -> TreedSource:
        """This source; its trees are made at the first call."""
        if not self.file.with_suffix(".json").exists():
            trees = [places_of(self.codec, tokens) for _, tokens in self.documents()]
            content, every = io.BytesIO(), np.concatenate([tree for _, tree in trees])
            np.save(content, every)
            atomic.write(self.file, content.getvalue())
            record = {"sha256": hashlib.sha256(every.tobytes()).hexdigest(), "documents": sum(has for has, _ in trees)}
            atomic.write_json(self.file.with_suffix(".json"), record)
        if not self.record["documents"]:
            raise ScalingError(
                "no document of the corpus is Python that this interpreter parses, as its tokens spell it",
                key="corpus",
                fix="take {kind: Python}, and a tokenizer that keeps all characters, as ByteBPE",
            )
        return self


def places_of(codec: Codec, tokens: np.ndarray) -> tuple[bool, np.ndarray]:
    """Whether a document (which ends in eos) has a tree, and the places [t 3] of its tokens."""
    outside = np.full((len(tokens), 3), OUTSIDE, np.int32)
    text = codec.decode(tokens[:-1])
    encoding = codec.tokenizer.encode(text, add_special_tokens=False)
    if not text or not np.array_equal(encoding.ids, tokens[:-1]):
        return False, outside
    found = places(text, np.array(encoding.offsets, np.int64)[:, 1])
    if found is None:
        return False, outside
    return True, np.concatenate([found, outside[-1:]])


def places(source: str, ends: np.ndarray) -> np.ndarray | None:
    """[t 3] of tokens that end after these characters [t]; None if the parser refuses the source."""
    lines = LINE.findall(source)
    starts = [0, *accumulate(map(len, lines))]
    nodes: list[tuple[int, int, int]] = [OUTSIDE]
    around = np.zeros(len(source), np.int32)

    def character(line: int, column: int) -> int:
        """A column of `ast` is in bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode(errors="ignore"))

    def descend(node: Any, depth: int) -> None:
        number, is_node = len(nodes), isinstance(node, NODES)
        if is_node:
            start, stop = character(node.lineno, node.col_offset), character(node.end_lineno, node.end_col_offset)
            around[start:stop] = number
            nodes.append((depth, number, 0))
        for child in ast.iter_child_nodes(node):
            descend(child, depth + is_node)
        if is_node:
            nodes[number] = depth, number, len(nodes)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes in other people's sources
            descend(ast.parse(source), 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return None
    return np.array(nodes, np.int32)[around[np.maximum(ends - 1, 0)]]
