"""A table's runs as a study: rows times seeds, with as many seeds as the table asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from scaling.config import SECTIONS
from scaling.study.question import Question
from scaling.table.table import Table


def question(table: Table, words: Sequence[str] = (), name: str | None = None) -> Question:
    """The study whose runs the table needs under these overrides.

    Its name says the table and, by a hash, what is trained: the same command goes on with it, and a table that has
    gained rows since is another study, which shares the runs that both have.
    """
    base, others = (
        [row.name for row in table.rows if (row.name == table.baseline) == first] for first in (True, False)
    )
    axes = [(base, table.seeds.baseline), (others, table.seeds.others)]
    return Question(
        name=name or f"{table.name}-{_hash(table, words)}",
        question=f"Which rows of {table.title} differ from {table.baseline}?",
        base=table.config,
        set={},
        grid=[{"row": rows, "seed": list(range(seeds))} for rows, seeds in axes if rows],
    )


def _hash(table: Table, words: Sequence[str]) -> str:
    counted = [section for section in SECTIONS if section not in ("log", "runs")]
    trees = [table.load(row.name, words).tree for row in table.rows]
    told = [asdict(table.seeds), [{section: tree[section] for section in counted} for tree in trees]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]
