"""Parameters, FLOPs and memory of models, counted without allocating any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import config
from scaling.errors import plural
from scaling.printing import byte_size, columns, html_table
from scaling.verbs.overrides import words as laid
from scaling.verbs.signature import verb
from scaling.verbs.train import Overlays

if TYPE_CHECKING:
    from scaling.cost import Cost


@dataclass(frozen=True)
class Costs:
    """What models cost: `costs` by name, `by_length` by name and length where lengths are named.

    Of a single model each figure of its `Cost` is an attribute: `scaling.inspect("gpt2").parameters`.
    """

    costs: Mapping[str, Cost]
    by_length: Mapping[str, Mapping[int, Cost]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        costs = list(vars(self).get("costs", {}).values())
        if len(costs) != 1 or name.startswith("_"):
            raise AttributeError(f"the costs of {plural(len(costs), 'model')} have no attribute {name!r}")
        return getattr(costs[0], name)

    def to_json(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The document of `scaling inspect --json` (docs/json.md)."""
        if self.by_length:
            return [
                {"model": name, "length": length, "flops_forward_per_token": cost.flops_forward_per_token}
                | cost.attention
                for name, costs in self.by_length.items()
                for length, cost in costs.items()
            ]
        documents = [{"model": name, **cost.to_json()} for name, cost in self.costs.items()]
        return documents[0] if len(documents) == 1 else documents

    def __str__(self) -> str:
        return columns(*self._table())

    def _repr_html_(self) -> str:
        return html_table(*self._table())

    def _table(self) -> tuple[list[str], list[Sequence[str]]]:
        if not self.by_length:
            return ["", *self.costs], list(_figures(list(self.costs.values())))
        rows = []
        for name, costs in self.by_length.items():
            for length, cost in costs.items():
                parts = [cost.attention[f"{part}_share_of_flops"] for part in ("projections", "between_tokens")]
                shares = [f"{part:.1%}" for part in (*parts, 1 - sum(parts))]
                rows.append([name, f"{length:,}", f"{cost.flops_forward_per_token:,.0f}", *shares])
        return ["", "length", "FLOPs per token", "projections", "between tokens", "all else"], rows


@verb
def inspect(
    *words: str,
    lengths: tuple[int, ...] = (),
    overlays: Overlays = (),
    runs: str | Path | None = None,
    **settings: Any,
) -> Costs:
    """Count parameters, FLOPs and memory of one or more models, side by side, without training or allocating any.

        scaling inspect gpt2                       the shipped model at its own size
        scaling inspect gpt2 size=gpt2/xl          another size of it
        scaling inspect gpt2 llama size=ladder/1M  two models at one size
        scaling inspect gpt2 --lengths 512 8192    how much of the FLOPs is between tokens, at each length

        scaling.inspect("gpt2", "size=gpt2/xl").parameters
        scaling.inspect("gpt2", "llama", size="ladder/1M").costs["llama"].flops_train_per_token

    `scaling table TABLE --counts` counts every row of a table.

    Args:
        words: models, tables' rows or files, and key=value, which hold for all of them
        lengths: windows of these lengths, and what attention costs in each
    """
    names = [word for word in words if "=" not in word]
    overrides = laid(
        [word for word in words if "=" in word], settings if runs is None else {**settings, "runs": str(runs)}
    )
    configs = {name or "model": config.load(name, overrides, overlays=overlays) for name in names or [None]}
    checked = {name: each.check() for name, each in configs.items()}

    from scaling.cost import by_length  # torch is imported once the configs are known to be right
    from scaling.training.experiment import counted

    if lengths:
        costs = Costs({}, {name: by_length(each, lengths) for name, each in checked.items()})
    else:
        costs = Costs({name: counted(each) for name, each in checked.items()})
    config.print_remarks(checked.values())
    return costs


def _figures(costs: Sequence[Cost]) -> Iterator[list[str]]:
    """The rows of the table: a title, and a figure of each model; those that are 0 of all are left out."""
    from scaling.cost import SLOTS

    def row(title: str, figure: Callable[[Cost], float], digits: str = ",.0f") -> Iterator[list[str]]:
        figures = [figure(cost) for cost in costs]
        if any(figures):
            yield [title, *(f"{number:{digits}}" for number in figures)]

    yield from row("parameters", lambda cost: cost.parameters)
    if any(cost.parameters_trained != cost.parameters for cost in costs):
        yield ["  trained", *(f"{cost.parameters_trained:,}" for cost in costs)]
    yield from row("  without embeddings", lambda cost: cost.parameters_non_embedding)
    for slot in SLOTS:
        yield from row(f"  {slot}", lambda cost, slot=slot: cost.parameters_by_slot[slot])
    yield (blank := [""] * (len(costs) + 1))
    yield from row("FLOPs forward, per token", lambda cost: cost.flops_forward_per_token)
    for slot in SLOTS:
        yield from row(f"  {slot}", lambda cost, slot=slot: cost.flops_forward_by_slot[slot] / cost.tokens)
    yield from row("FLOPs training, per token", lambda cost: cost.flops_train_per_token)
    yield from row(
        "  shared by the rows of a batch", lambda cost: (cost.flops_train_shared or 0) / cost.flops_train, ".1%"
    )
    for name in costs[0].approximations:
        title = f"  by {name.replace('_', ' ')}, relative to it"
        yield from row(title, lambda cost, name=name: cost.approximations[name] / cost.flops_train_per_token, ".3f")
    yield from row("  checkpointing adds", lambda cost: cost.flops_recomputed / cost.flops_train, ".1%")
    yield blank
    yield from row("attention, of forward FLOPs", lambda cost: cost.attention["share_of_flops"], ".1%")
    for part in ("projections", "between_tokens"):
        yield from row(
            f"  {part.replace('_', ' ')}", lambda cost, part=part: cost.attention[f"{part}_share_of_flops"], ".1%"
        )
    yield blank
    titles = {"parameters": "parameters", "parameters_non_embedding": "parameters without embeddings"}
    for part, title in (titles | {"flops": "forward FLOPs"}).items():
        yield from row(f"feed-forward, of {title}", lambda cost, part=part: cost.feed_forward_share[part], ".1%")
    yield blank
    memory = [cost.memory() for cost in costs]
    yield ["memory of a window, float32, Adam", *(byte_size(sum(parts.values())) for parts in memory)]
    for part in memory[0]:
        yield [f"  {part}", *(byte_size(parts[part]) for parts in memory)]
    yield from row("tokens a window", lambda cost: cost.tokens)
