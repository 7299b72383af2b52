"""Parameters, FLOPs and memory of models, counted without allocating any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scaling.base.printing import byte_size
from scaling.config import compose as config
from scaling.verbs.train import Overlays
from scaling.verbs.verb import Result, verb

if TYPE_CHECKING:
    from scaling.model.cost import Cost


@dataclass(frozen=True, repr=False)
class Costs(Result):
    """What models cost: `costs` by name. The figures of a single model are attributes (docs/json.md):
    `scaling.inspect("gpt2").parameters`.
    """

    costs: Mapping[str, Cost] = field(default_factory=dict)


@verb
def inspect(*words: str, lengths: tuple[int, ...] = (), overlays: Overlays = (), **settings: Any) -> Costs:
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
    names, overrides = ([word for word in words if ("=" in word) == given] for given in (False, True))
    each = dict.fromkeys((name, length) for name in names or [None] for length in lengths or [None])
    checked = {}
    for name, length in each:
        title, given = name or "model", list(overrides)
        if length is not None:
            title, given = f"{title}, {length:,} tokens", [*given, f"size.length={length}"]
        checked[title] = config.load(name, given, overlays=overlays).check()

    from scaling.training.experiment import counted  # torch is imported once the configs are known to be right

    costs, documents = {title: counted(one) for title, one in checked.items()}, []
    for (name, length), cost in zip(each, costs.values(), strict=True):
        figures = cost.to_json()
        if length is not None:
            figures = {"length": length, "flops_forward_per_token": cost.flops_forward_per_token, **cost.attention}
        documents.append({"model": name or "model", **figures})
    is_tuned = any(cost.parameters_trained != cost.parameters for cost in costs.values())
    rows = []
    for lines in zip(*(_figures(cost, is_tuned) for cost in costs.values())):
        if any(number for _, number, _ in lines):  # what is 0 of all models is left out
            cells = (f"{number:{digits}}" if digits else byte_size(number) for _, number, digits in lines)
            rows.append([lines[0][0], *(cells if lines[0][0] else [""] * len(lines))])
    for device, title in (("cpu", "attention on a CPU, float32"), ("cuda", "attention on CUDA, bfloat16")):
        if any(cost.attention_by.get(device) for cost in costs.values()):
            rows.append([title, *(", ".join(cost.attention_by.get(device, ())) for cost in costs.values())])
    config.print_remarks(checked.values())
    is_one = len(documents) == 1 and not lengths
    return Costs(documents[0] if is_one else documents, [(["", *costs], rows)], costs=costs)


def _figures(cost: Cost, is_tuned: bool) -> list[tuple[str, float, str]]:
    """The figures of a model, each with its title and its format; the format of bytes is empty."""
    from scaling.model.cost import SLOTS

    by_slot, flops = cost.parameters_by_slot, cost.flops_forward_by_slot
    feed_forward, memory, blank = cost.feed_forward_share, cost.memory(), ("", 1, "")
    count, share = ",.0f", ".1%"
    return [
        ("parameters", cost.parameters, count),
        ("  trained", cost.parameters_trained if is_tuned else 0, count),
        ("  without embeddings", cost.parameters_non_embedding, count),
        *((f"  {slot}", by_slot[slot], count) for slot in SLOTS),
        blank,
        ("FLOPs forward, per token", cost.flops_forward_per_token, count),
        *((f"  {slot}", flops[slot] / cost.tokens, count) for slot in SLOTS),
        ("FLOPs training, per token", cost.flops_train_per_token, count),
        ("  shared by the rows of a batch", (cost.flops_train_shared or 0) / cost.flops_train, share),
        *(
            (f"  by {name.replace('_', ' ')}, relative to it", value / cost.flops_train_per_token, ".3f")
            for name, value in cost.approximations.items()
        ),
        ("  checkpointing adds", cost.flops_recomputed / cost.flops_train, share),
        blank,
        ("attention, of forward FLOPs", cost.attention["share_of_flops"], share),
        ("  projections", cost.attention["projections_share_of_flops"], share),
        ("  between tokens", cost.attention["between_tokens_share_of_flops"], share),
        blank,
        ("feed-forward, of parameters", feed_forward["parameters"], share),
        ("feed-forward, of parameters without embeddings", feed_forward["parameters_non_embedding"], share),
        ("feed-forward, of forward FLOPs", feed_forward["flops"], share),
        blank,
        ("memory of a window, float32, Adam", sum(memory.values()), ""),
        *((f"  {part}", size, "") for part, size in memory.items()),
        ("tokens a window", cost.tokens, count),
    ]
