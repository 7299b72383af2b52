"""Parameters, FLOPs and memory of one or more models, side by side, without training or allocating any.

scaling inspect gpt2                       the shipped model at its own size
scaling inspect gpt2 size=gpt2/xl          another size of it
scaling inspect gpt2 llama size=ladder/1M  two models at one size
scaling inspect gpt2 --lengths 512 8192    how much of the FLOPs is between tokens, at each length
scaling inspect --table narang2021         every row of a table, as `scaling table narang2021 --counts`
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from scaling import config
from scaling.command.document import numbered

if TYPE_CHECKING:
    from scaling.cost import Cost


def add_arguments(parser: argparse.ArgumentParser) -> None:
    config.add_arguments(parser)
    parser.add_argument("--table", metavar="TABLE", help="a table, whose rows are counted in place of models")
    parser.add_argument(
        "--lengths", metavar="N", nargs="+", type=int, help="windows of these lengths, and what attention costs in each"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON document: an object, or a list for several models"
    )


def run(arguments: argparse.Namespace) -> None:
    if arguments.table is not None:
        from scaling.command.table import count

        return count(arguments.table, arguments.words, arguments.json)
    configs = {name: counted.check() for name, counted in config.configs(arguments).items()}

    from scaling.api.configs import inspect_config

    if arguments.lengths:
        return _by_length(configs, arguments.lengths, arguments.json)
    costs = {name: inspect_config(checked) for name, checked in configs.items()}
    config.print_remarks(configs.values())
    if arguments.json:
        documents = [{"model": name, **cost.to_json()} for name, cost in costs.items()]
        print(json.dumps(numbered(documents[0]) if len(documents) == 1 else documents, indent=2))
    else:
        _print(costs)


def _print(costs: dict[str, Cost]) -> None:
    from rich.console import Console
    from rich.table import Table

    from scaling.cost import SLOTS

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in costs:
        table.add_column(name, justify="right")

    def row(title: str, *cells: str, style: str = "") -> None:
        table.add_row(title, *cells, style=style)

    every = list(costs.values())
    row("parameters", *(f"{cost.parameters:,}" for cost in every), style="bold")
    if any(cost.parameters_trained != cost.parameters for cost in every):
        row("  trained", *(f"{cost.parameters_trained:,}" for cost in every))
    row("  without embeddings", *(f"{cost.parameters_non_embedding:,}" for cost in every))
    for slot in SLOTS:
        if any(cost.parameters_by_slot[slot] for cost in every):
            row(f"  {slot}", *(f"{cost.parameters_by_slot[slot]:,}" for cost in every), style="dim")
    row("")
    row("FLOPs forward, per token", *(f"{cost.flops_forward_per_token:,.0f}" for cost in every), style="bold")
    for slot in SLOTS:
        if any(cost.flops_forward_by_slot[slot] for cost in every):
            row(f"  {slot}", *(f"{cost.flops_forward_by_slot[slot] / cost.tokens:,.0f}" for cost in every), style="dim")
    row("FLOPs training, per token", *(f"{cost.flops_train_per_token:,.0f}" for cost in every), style="bold")
    shared = [cost.flops_train_shared or 0 for cost in every]
    if any(shared):
        fractions = (f"{part / cost.flops_train:.1%} of it" for part, cost in zip(shared, every))
        row("  shared by the rows of a batch", *fractions)
    for formula in every[0].approximations:
        row(
            f"  by {formula.replace('_', ' ')}",
            *(f"{cost.approximations[formula] / cost.flops_train_per_token:.3f} of it" for cost in every),
            style="dim",
        )
    again = [cost.flops_recomputed for cost in every]
    if any(again):
        row("  checkpointing adds", *(f"{part / cost.flops_train:.1%} of it" for part, cost in zip(again, every)))
    row("")
    row("attention, of forward FLOPs", *(f"{cost.attention['share_of_flops']:.1%}" for cost in every), style="bold")
    for part, of in (("projections", "projections"), ("between tokens", "between_tokens")):
        row(f"  {part}", *(f"{cost.attention[f'{of}_share_of_flops']:.1%}" for cost in every), style="dim")
    row("")
    row("feed-forward fraction", style="bold")
    for of, name in (
        ("parameters", "parameters"),
        ("parameters_non_embedding", "parameters without embeddings"),
        ("flops", "forward FLOPs"),
    ):
        row(f"  of {name}", *(f"{cost.feed_forward_share[of]:.1%}" for cost in every))
    row("")
    row("memory of a window, float32, Adam", *(_bytes(sum(cost.memory().values())) for cost in every), style="bold")
    for part in every[0].memory():
        row(f"  {part}", *(_bytes(cost.memory()[part]) for cost in every), style="dim")
    row("tokens a window", *(f"{cost.tokens:,}" for cost in every))
    Console(highlight=False).print(table)


def _by_length(configs: dict[str, config.Config], lengths: list[int], as_json: bool) -> None:
    """What the token mixers cost in windows of each length."""
    from rich.console import Console
    from rich.table import Table

    from scaling.cost import by_length

    config.print_remarks(configs.values())
    costs = {name: by_length(checked, lengths) for name, checked in configs.items()}
    if as_json:
        rows = [
            {"model": name, "length": length, "flops_forward_per_token": cost.flops_forward_per_token, **cost.attention}
            for name, own in costs.items()
            for length, cost in own.items()
        ]
        return print(json.dumps(rows, indent=2))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "length", "FLOPs per token", "projections", "between tokens", "all else"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for name, own in costs.items():
        for length, cost in own.items():
            shares = [cost.attention[f"{part}_share_of_flops"] for part in ("projections", "between_tokens")]
            cells = (f"{share:.1%}" for share in (*shares, 1 - sum(shares)))
            table.add_row(name, f"{length:,}", f"{cost.flops_forward_per_token:,.0f}", *cells)
    Console(highlight=False).print(table)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
