"""Where a published set comes from, and what its figures are compared with."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Credit:
    """The authors of a set, to be named wherever its points are shown."""

    paper: str
    arxiv: str
    repository: str
    commit: str
    licence: str

    def __str__(self) -> str:
        return f"{self.paper}, arXiv {self.arxiv}; points from {self.repository} at {self.commit} ({self.licence})"


@dataclass(frozen=True)
class Reproduction:
    """One published figure and ours.

    `tolerance` is the largest difference that the figure's printed digits and its own procedure explain. An objective
    is held to "at most": an optimum below the published one is better, not wrong.
    """

    law: str
    set: str
    quantity: str
    published: float
    ours: float
    tolerance: float
    remark: str = ""
    relation: Literal["equal", "at most"] = "equal"

    @property
    def difference(self) -> float:
        return self.ours - self.published

    @property
    def holds(self) -> bool:
        distance = abs(self.difference) if self.relation == "equal" else self.difference
        return distance <= self.tolerance


def rows(table: str) -> list[dict[str, str]]:
    """The rows of a shipped table, as they were published."""
    with (TABLES / table).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
