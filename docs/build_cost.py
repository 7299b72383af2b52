"""Write the table of attention's share into docs/cost.md; with --check, see that it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scaling.config.compose import load
from scaling.model.cost import Cost, cost

PAGE = Path(__file__).with_name("cost.md")
BEGIN, END = "<!-- attention by length: python docs/build_cost.py -->", "<!-- end -->"
SIZES = ["small", "medium", "large", "xl", "2.7b", "6.7b", "13b", "175b"]
LENGTHS = [512 << power for power in range(9)]


def rows(sizes: Sequence[str], lengths: Sequence[int] = LENGTHS) -> Iterator[str]:
    """For each size of GPT-3 and each length the fraction of forward FLOPs between tokens, and of the projections."""
    for size in sizes:
        costs = (cost(load("gpt3", [f"size=gpt3/{size}", f"size.length={length}"])) for length in lengths)
        yield f"| {size} | {' | '.join(map(cell, costs))} |"


def cell(cost: Cost) -> str:
    between, maps = (cost.attention[f"{part}_share_of_flops"] for part in ("between_tokens", "projections"))
    return f"{between:.1%} + {maps:.1%}"


def table() -> str:
    titles = (f"{length // 1024}k" if length >= 1024 else f"{length}" for length in LENGTHS)
    lines = [f"| gpt3/ | {' | '.join(titles)} |", f"|---|{'--:|' * len(LENGTHS)}"]
    return "\n".join([*lines, *rows(SIZES)])


def page(text: str) -> str:
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    current = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        if page(current) != current:
            sys.exit("docs/cost.md has another table than the counts: run python docs/build_cost.py")
    else:
        PAGE.write_text(page(current), encoding="utf-8")
