"""Transfer: which parameters a run trains and how fast, and the head of a task.

`train.parts` names what is trained. All else is frozen: it takes no gradient, and no optimizer holds it.

    all             every parameter
    head            those of the head (a linear probe)
    bias            every bias, and the tensors that the start does not have: a new head (Ben Zaken et al. 2021, BitFit)
    {last: k}       the last k blocks, what follows them in their stack, and the head
    [patterns]      parameters by name, `*` for any letters

A tied table is one parameter. It belongs to the embedding, so `head` and `last` leave it frozen; a pattern that names
it in any of its places trains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from scaling.base.errors import ScalingError, nearest, plural, refuse
from scaling.config.document import Config
from scaling.data.source import Source
from scaling.model.family import Encoder, Family
from scaling.model.parameters import parameters

if TYPE_CHECKING:
    from scaling.data.task.source import Examples

KEY = "train.parts"
Parts = str | Sequence[str] | Mapping[str, Any]


def trained(model: Family, parts: Parts, new: Collection[str] = ()) -> frozenset[str]:
    """The names of the parameters that a run trains; `new` are those that its start does not have."""
    specs = [spec for spec, _ in parameters(model)]
    head = {spec.name for spec in specs if spec.slot == "head"}
    if parts == "all":
        return frozenset(spec.name for spec in specs)
    if parts == "head":
        names = head
        what, fix = "the head has no parameters of its own", "take head out of model.tie, or name the table by its name"
    elif parts == "bias":
        biases = {spec.name for spec in specs if spec.role == "bias"}
        names = biases | set(new) if biases - head else set()  # a new head's bias alone would be a linear probe
        what, fix = "the model below its head has no biases", "set bias: true in its pieces, or name other parts"
    elif isinstance(parts, Mapping):
        names = head | _last(model, parts)
        what, fix = "these blocks have no parameters", "name more of them"
    else:
        names = _named(model, parts)
        what, fix = "it names no parameter", "write patterns, as [head.*]"
    refuse(not names, what, fix, key=KEY, value=parts)
    return frozenset(names)


def _last(model: Family, parts: Mapping[str, Any]) -> set[str]:
    """The last blocks of the tower that predicts, of a BiLM of both, and what comes after them."""
    stacks = [tower.stack for name, tower in model.towers.items() if name == model.family or name != "encoder"]
    count, place = cast(Any, parts.get("last")), {"key": KEY, "value": dict(parts)}
    blocks = len(list(stacks[0].blocks))
    is_wrong = set(parts) != {"last"} or type(count) is not int or count < 1
    refuse(is_wrong, "expected the number of the last blocks", "write {last: 2}", **place)
    refuse(count > blocks, f"the tower has {plural(blocks, 'block')}", f"write {{last: {blocks}}}, or fewer", **place)
    inside, below = {one for stack in stacks for one in stack.parameters()}, depths(model)  # type: ignore[attr-defined]
    return {spec.name for spec, one in parameters(model) if one in inside and below[spec.name] < count}


def _named(model: Family, patterns: Sequence[str]) -> set[str]:
    """The parameters that some pattern names, by any of their names."""
    first = {parameter: spec.name for spec, parameter in parameters(model)}
    places = {name: first[parameter] for name, parameter in model.named_parameters(remove_duplicate=False)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in places):
            raise ScalingError("no parameter has such a name", key=KEY, value=pattern, fix=nearest(pattern, places))
    return {first for name, first in places.items() if matches(name, patterns)}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a parameter's name is one of the patterns', `*` for any letters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def depths(model: Family) -> dict[str, int]:
    """How many blocks k below the top each parameter is: it learns at η fᵏ. (Sun et al. 2019, section 5.3.3)

    The last block, what follows it, and the head are at the top; the embeddings, with the positions that a stack has in
    common, are below the first block. An encoder and a decoder are counted each from its own top. A tensor that several
    places share has the lowest of their rates.
    """
    below, specs = defaultdict[Tensor, int](int), parameters(model)
    position = {parameter for spec, parameter in specs if spec.slot == "position"}
    for tower in model.towers.values():
        blocks = [set(block.parameters()) for block in tower.stack.blocks]
        shared = position & set(tower.parameters()) - set[Tensor]().union(*blocks)
        levels = [shared | set(tower.embedding.parameters()), *blocks]  # type: ignore[attr-defined]
        for depth, level in enumerate(reversed(levels)):
            for parameter in level:
                below[parameter] = max(below[parameter], depth)
    return {spec.name: below[parameter] for spec, parameter in specs}


# The head of a task


def check_head(model: Family, objective: Any, source: Source) -> None:
    """Refuse a head that predicts other answers than the task has, or another number of classes."""
    head, kind = cast(Any, model.head), type(model.head).__name__
    what = (
        "the model predicts the token before each too" if model.learns_previous else "the model reads in one direction"
    )
    fix = "take objective=BothWays" if model.learns_previous else "take model.kind=BiLM with a head of tokens"
    is_other = model.learns_previous != getattr(objective, "previous", False)
    refuse(is_other, what, fix, key="objective.kind", value=type(objective).__name__)
    if source.gives != "examples":
        what = f"the head {kind} learns from labels, and the objective makes none"
        is_other = head.answer is not None and getattr(objective, "labels", None) != head.answer
        refuse(is_other, what, "choose another objective or another head", key="model.head.kind", value=kind)
        return
    task = source.task  # type: ignore[attr-defined]
    answer = None if objective.writes(task) else task.answer
    what = "tokens of text, which the model writes" if answer is None else f"of the kind {answer}"
    fix = "take a head of next tokens, as Linear" if answer is None else f"take {{kind: {task.head}, …}}"
    refuse(head.answer != answer, f"the answers of the task are {what}", fix, key="model.head.kind", value=kind)
    if answer is None:
        return
    if isinstance(model, Encoder) and "options" in task.takes:
        stack = type(model.encoder.stack).__name__
        what = f"the head reads other places than the first, and {stack} keeps a vector for few of the tokens"
        fix = "take UpsampledFunnel or Sequential"
        refuse(model.encoder.stack.shortens, what, fix, key="model.stack.kind", value=stack)
    out, labels = getattr(head, "out", None), getattr(task, "labels", ())
    if "classes" in task.head_keys and out is not None:
        what = f"the task has {len(labels)} labels: {', '.join(labels[:8])}{', …' * (len(labels) > 8)}"
        is_other, place = out.out_features != len(labels), {"key": "model.head.classes", "value": out.out_features}
        refuse(is_other, what, f"set it to {len(labels)}", **place)
    is_single = model.family == "decoder" and task.order == "either" and "added" in task.head_keys and not head.added
    what = "a decoder reads these pairs in both orders, whose vectors are added"
    refuse(is_single, what, "set it to true", key="model.head.added", value=False)


def balanced(config: Config, source: Source) -> Config:
    """The config with the weights n / (classes · n_c) in the place of `balanced`."""
    head = config["model.head"]
    if not isinstance(head, Mapping) or head.get("weights") != "balanced":
        return config
    labels = cast("Examples", source).task.labels if source.gives == "examples" else ()
    what, fix = "there are no labelled examples to balance", "give the weights"
    config.refuse(not labels, "model.head.weights", what, fix)
    counts = cast("Examples", source).label_counts
    fewest = labels[int(counts.argmin())]
    config.refuse(not counts.all(), "model.head.weights", f"no training example has the label {fewest}", fix)
    weights = [float(f"{weight:.6g}") for weight in counts.sum() / (len(counts) * counts)]
    model = {**config["model"], "head": {**head, "weights": weights}}
    return replace(config, tree={**config.tree, "model": model})
