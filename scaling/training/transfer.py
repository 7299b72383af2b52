"""Transfer: the weights that a run begins with, which parameters it trains and how fast, and the head of a task.

A model takes every tensor of its start of the same name and shape. What the start does not have, has and is not used,
or has in another shape is refused by name, but for what `start.new` (drawn by the parametrization) and `start.unused`
name. A table with more rows than the start's keeps the start's rows, and its other rows are drawn.

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

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from scaling.base.errors import ScalingError, from_os, nearest, plural, refuse
from scaling.config.document import Config
from scaling.data import vectors
from scaling.data.codec import Codec
from scaling.data.source import Source
from scaling.data.task import Examples
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.interop.location import listed
from scaling.interop.run import read
from scaling.model.family import Encoder, Family
from scaling.model.parameters import parameters
from scaling.training.finetune import COUNTING, HEADS, PAIRED, pretrained

KEY = "train.parts"
Parts = str | Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Start:
    """The weights of a finished run, of a checkpoint, of a folder, or of a file of word vectors.

    `new` and `unused` are the config's patterns. `drawn`, `grown` and `left` are names of tensors: those that the run
    draws, those of which it draws the last rows, and those of the start that it does not use.
    """

    saved: Saved = field(repr=False, compare=False)
    sha256: str
    new: tuple[str, ...]
    unused: tuple[str, ...]
    drawn: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    @classmethod
    def read(cls, config: Config) -> Start | None:
        """The start that a config names; None where it names none."""
        section = config.tree.get("start")
        if section is None or section.get("vectors") is not None:
            return None
        with reading(config, "start.run" if section.get("folder") is None else "start.folder"):
            place, step = str(section.get("run")), section.get("step")
            if section.get("folder") is not None:
                place = Path(os.path.expanduser(section["folder"]))
                fix = "name a folder of `scaling import`, or of transformers"
                refuse(not place.is_dir(), "there is no such folder", fix)
            elif step is None:  # only of a finished run
                place = pretrained(place, config["runs"]).folder
            saved = read(place, config["runs"], step)
            new, unused = (tuple(section.get(key) or ()) for key in ("new", "unused"))
            return cls(saved, weights.digest(saved.tensors), new, unused)

    @classmethod
    def of_vectors(cls, config: Config, source: Source) -> tuple[Start, int] | None:
        """The table of an embedding from a file of word vectors, and how many tokens have one; None where the config
        names no file. All else is drawn.
        """
        section = config.tree.get("start") or {}
        if section.get("vectors") is None:
            return None
        file, codec = Path(os.path.expanduser(section["vectors"])), cast(Any, getattr(source, "codec", None))
        fix = "name a file of word2vec, GloVe or fastText"
        config.refuse(not file.is_file(), "start.vectors", "there is no such file", fix)
        config.refuse(codec is None, "start.vectors", "the data have no words", "take data of texts")
        spellings = tuple(codec.spellings(config["size.vocabulary"]))
        table, covered = vectors.table(file, spellings, config["size.width"], config["seed"])
        towers = {"Encoder": ["encoder"], "EncoderDecoder": ["encoder", "decoder"]}
        names = towers.get(config["model.kind"], ["decoder"])
        tensors = {f"{name}.embedding.table": torch.from_numpy(table) for name in names}
        saved = Saved({"size": {}}, tensors, place={"vectors": str(file)})
        return cls(saved, weights.digest(tensors), ("*",), ("*",)), covered

    @property
    def vocabulary(self) -> int | None:
        return self.saved.sections["size"].get("vocabulary")

    @property
    def is_kept(self) -> bool:
        """Whether the weights can be read again as they are, so that checkpoints may leave them out."""
        return "vectors" not in self.saved.place

    @property
    def name(self) -> str:
        """The start in an error."""
        place = self.saved.place
        return str(place.get("vectors") or place.get("folder") or f"run {place['run']} at step {place['step']}")

    @property
    def own(self) -> frozenset[str]:
        """Tensors of which not all numbers are the start's."""
        return self.drawn | self.grown

    @property
    def record(self) -> dict[str, Any]:
        """The place of the weights, and the hash by which they are known to be the same."""
        return {"sha256": self.sha256, **self.saved.place}

    def fitted(self, model: Family, added: Collection[str] = ()) -> Start:
        """How it goes into a model, or an error that lists every tensor that does not fit. Those that a tuning `added`
        may be missing: a start is a base, or tuned in the same way.
        """
        specs = {id(parameter): spec for spec, parameter in parameters(model)}
        missing, shaped, new, grown, used = list[str](), dict[str, str](), set[str](), set[str](), set[str]()
        for tensor, aliases in weights.aliases(model):
            name, there = aliases[0], [alias for alias in aliases if alias in self.saved.tensors]
            accepted = any(matches(alias, self.new) for alias in aliases)
            if not there:
                if not accepted and name not in added:
                    missing.append(name)
                new.add(name)
                continue
            base = self.saved.tensors[there[0]]
            used |= {alias for alias in there if alias == there[0] or torch.equal(self.saved.tensors[alias], base)}
            spec = specs.get(id(tensor))
            # A head may have a vector with a number for each token.
            is_vocabulary = tensor.ndim == base.ndim == 1 and len(base) == self.vocabulary
            by_row = spec is not None and (spec.role == "table" or (spec.slot == "head" and is_vocabulary))
            if base.shape == tensor.shape:
                if accepted and not by_row:
                    new.add(name)
                continue
            if not accepted:
                shaped[name] = f"{name} is {weights.shape(base)} instead of {weights.shape(tensor)}"
            more = base.ndim == tensor.ndim and base.shape[1:] == tensor.shape[1:] and len(base) < len(tensor)
            (grown if by_row and more else new).add(name)
        left = self.saved.tensors.keys() - used
        extra = [name for name in self.saved.tensors if name in left and not matches(name, self.unused)]
        if missing or shaped or extra:
            wrong = {"missing ": missing, "unused ": extra, "": [*shaped.values()]}
            what = "; ".join(head + listed(names) for head, names in wrong.items() if names)
            keys = {"start.new": [*missing, *shaped], "start.unused": extra}
            words = " and ".join(f"{key}={_patterns(names)}" for key, names in keys.items() if names)
            fix = f"set {words} where that is meant, or take the start's model"
            raise ScalingError(f"the weights of {self.name} do not fit the model: {what}", key="start", fix=fix)
        what, place = f"the run takes no tensor of {self.name}", {"key": "start.new", "value": list(self.new)}
        refuse(len(new) == len(weights.aliases(model)), what, "name only what is new", **place)
        return replace(self, drawn=frozenset(new), grown=frozenset(grown), left=frozenset(left))

    def check_tokenizer(self, source: Source) -> None:
        """Refuse data that are encoded by another tokenizer than the start was trained with, where both have one."""
        if source.codec is not None and self.saved.tokenizer is not None:
            own, start = source.codec, Codec.load(self.saved.tokenizer)
            what = f"the data have another tokenizer ({own.sha256[:12]}) than {self.name} ({start.sha256[:12]})"
            fix = f"take {{kind: File, path: {self.saved.tokenizer}}}, or another start"
            refuse(not own.is_same(start), what, fix, key="data.tokenizer")

    @torch.no_grad()
    def apply(self, model: Family) -> None:
        """Put the weights into a model whose parameters have been drawn."""
        for tensor, aliases in weights.aliases(model):
            if aliases[0] not in self.drawn:
                base = next(self.saved.tensors[alias] for alias in aliases if alias in self.saved.tensors)
                tensor[: len(base)].copy_(base) if aliases[0] in self.grown else tensor.copy_(base)


@contextmanager
def reading(config: Config, key: str) -> Iterator[None]:
    """Place what is wrong with a run that a config names at the key that names it."""
    try:
        yield
    except ScalingError as error:
        within = "" if error.file is None else f"{error.file}: "
        raise config.error("start.step" if error.key == "step" else key, f"{within}{error.what}", error.fix) from None
    except OSError as error:
        raise config.error(key, from_os(error, "cannot be read").what) from None


def _patterns(names: Sequence[str]) -> str:
    """A list for the config: the names, or the parts that they are in where there are many."""
    if len(names) > 4:
        names = list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names))
    return f"[{', '.join(names)}]"


# Trained parts


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
    fix = "take a head of next tokens, as Linear" if answer is None else f"take {{kind: {HEADS[answer]}, …}}"
    refuse(head.answer != answer, f"the answers of the task are {what}", fix, key="model.head.kind", value=kind)
    if isinstance(model, Encoder) and answer == "options":
        stack = type(model.encoder.stack).__name__
        what = f"the head reads other places than the first, and {stack} keeps a vector for few of the tokens"
        fix = "take UpsampledFunnel or Sequential"
        refuse(model.encoder.stack.shortens, what, fix, key="model.stack.kind", value=stack)
    out, labels = getattr(head, "out", None), getattr(task, "labels", ())
    if answer in COUNTING and out is not None:
        what = f"the task has {len(labels)} labels: {', '.join(labels[:8])}{', …' * (len(labels) > 8)}"
        is_other, place = out.out_features != len(labels), {"key": "model.head.classes", "value": out.out_features}
        refuse(is_other, what, f"set it to {len(labels)}", **place)
    is_single = model.family == "decoder" and task.order == "either" and answer in PAIRED and not head.added
    what = "a decoder reads these pairs in both orders, whose vectors are added"
    refuse(is_single, what, "set it to true", key="model.head.added", value=False)


def balanced(config: Config, source: Source) -> Config:
    """The config with the weights n / (classes · n_c) in the place of `balanced`."""
    head = config["model.head"]
    if not isinstance(head, Mapping) or head.get("weights") != "balanced":
        return config
    what, fix = "there are no labelled examples to balance", "give the weights"
    config.refuse(source.gives != "examples", "model.head.weights", what, fix)
    counts = cast(Examples, source).label_counts
    fewest = cast(Examples, source).task.labels[int(counts.argmin())]
    config.refuse(not counts.all(), "model.head.weights", f"no training example has the label {fewest}", fix)
    weights = [float(f"{weight:.6g}") for weight in counts.sum() / (len(counts) * counts)]
    model = {**config["model"], "head": {**head, "weights": weights}}
    return replace(config, tree={**config.tree, "model": model})
