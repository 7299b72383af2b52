"""Experiment: a config made whole. Every piece built and checked, the steps it takes, and the spec that names the
run.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError, plural
from scaling.config import compose, schema
from scaling.config.document import Config, document
from scaling.config.files import shipped
from scaling.config.strict_yaml import COMMAND_LINE, quantity
from scaling.data.batches import Batches, check_takes, evaluation, training
from scaling.data.plan import BatchSize, Buckets, ByLength, Windows
from scaling.data.source import Vocabulary, objective_of
from scaling.data.store import root
from scaling.data.task.answers import KINDS, Goal
from scaling.data.tokens import MappedSource
from scaling.ledger.identity import run_name
from scaling.model.contract import Position, Tuning
from scaling.model.cost import Cost, cost, inspected
from scaling.model.family import Family
from scaling.model.parameters import ADDED, ParameterSpec, parameters
from scaling.model.tuned import blank_model
from scaling.training import transfer
from scaling.training.evaluation import EVALUATION_TOKENS, affordable, evaluation_steps
from scaling.training.optimizer import Optimizer
from scaling.training.parametrization import Parametrization, initialise
from scaling.training.ranks import rank_count
from scaling.training.schedule import BUDGET, WSD, Constant, Schedule, check, identified, warmup_steps

if TYPE_CHECKING:
    from scaling.interop.huggingface import Saved
    from scaling.training.start import Start


@dataclass(frozen=True)
class Experiment:
    """The computation of a run, without where or how it is executed."""

    config: Config
    steps: int
    optimizer: Optimizer
    schedule: Schedule
    parametrization: Parametrization
    size: BatchSize
    batches: Batches
    validation: Batches  # all that an evaluation may take
    points: int  # evaluations that it asks for, or fewer where it is short
    windows: tuple[int, int]  # of an evaluation before the end, and of the last
    row_tokens: int  # of one row that a model reads, on both its sides where it has two
    entropy: float | None  # the floor of the objective's loss, where the law of the data gives it
    teacher: Saved | None  # whose predictions the objective distils
    start: Start | None  # the weights that it begins with; else all are drawn
    trained: frozenset[str]  # names of the parameters that it trains
    names: frozenset[str]  # of all parameters
    depths: Mapping[str, int]  # how many blocks below the top each parameter is
    versions: Mapping[str, int]  # of the kinds that the config names: alike in all runs that are `varied` from one
    horizon: bool = True  # a trunk has none: its `steps` are how far it is trained, and no part of what it is

    def model(self) -> Family:
        """The model without weights, with what tuning puts into it; `initialise` gives it some."""
        model, _ = blank_model(self.config)
        model.checkpoint(self.config["train.checkpointing"])
        return model

    def initial_model(self, device: torch.device | str = "cpu") -> Family:
        """The model with the weights that the run begins with; what it does not train takes no gradient."""
        model = initialise(self.model(), self.parametrization, self.seed, device)
        if self.start is not None:
            self.start.apply(model)
        for spec, parameter in parameters(model):
            parameter.requires_grad_(spec.name in self.trained)
        return model

    @property
    def saved(self) -> frozenset[str]:
        """The parameters that a checkpoint holds: where the run has a start, those that are not the start's."""
        return self.names if self.start is None or not self.start.is_kept else self.trained | self.start.own

    @property
    def patience(self) -> int | None:
        """Evaluations without improvement after which the run ends."""
        return self.config.tree["train"]["patience"]

    def rate(self, spec: ParameterSpec) -> float:
        """The factor of a parameter's learning rate, relative to the optimizer's."""
        return self.parametrization.rate(spec) * self.config["train.layer_decay"] ** self.depths.get(spec.name, 0)

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @cached_property
    def cost(self) -> Cost:
        return cost(self.config, trained=None if self.trained == self.names else self.trained)

    @property
    def family(self) -> str:
        return schema.family(self.config["model"])

    @cached_property
    def name(self) -> str:
        """The name of the run in the ledger and in loggers; that of a trunk leaves out its branches' budgets."""
        name = run_name(self.config, self.cost.parameters_non_embedding)
        budgets = tuple(f"{key.rpartition('.')[2]}=" for key in BUDGET)
        return name if self.horizon else " ".join(w for w in ("trunk", *name.split(" ")) if not w.startswith(budgets))

    def evaluation(self, step: int | None = None) -> tuple[Batches, int]:
        """The held-out batches of the evaluation at a step, or of the last, and how many they are."""
        plan, windows = cast(Windows, self.validation.plan), self.windows[step in (None, self.steps)]
        return replace(self.validation, plan=replace(plan, limit=windows)), -(-windows // plan.size.size(0))

    @property
    def evaluated(self) -> dict[int, int]:
        """The windows of each evaluation, by its step."""
        steps = evaluation_steps(self.steps, self.points, self.evenly)
        # The end of a trunk is no run's.
        return {step: self.windows[step == self.steps] for step in steps if self.horizon or step < self.steps}

    @property
    def evenly(self) -> bool:
        """Whether evaluations are spaced evenly in steps: also those that decide when a run ends."""
        return self.patience is not None or self.config.tree["evaluate"]["spacing"] == "even"

    def tokens(self, step: int) -> int:
        """Tokens seen when update `step` begins."""
        return self.size.before(step) * self.row_tokens

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All that can change what comes out; equal specs are one run. Runs with the same stable phase share the spec
        of their trunk, which has no end.

        Some keys are left out at their defaults: those of `train` about parts and rates, and the precision of
        evaluations. Where a run may end early, the steps at which it is evaluated count. All windows are null.
        """
        tree = self.config.tree
        train = {key: tree["train"][key] for key in ("batch", "documents", "smoothing")}
        defaults = {"parts": "all", "layer_decay": 1}
        train |= {key: tree["train"][key] for key, default in defaults.items() if tree["train"][key] != default}
        if self.patience is not None:
            train["patience"] = {"evaluations": self.patience, "points": self.points}
        trainer = {key: tree["trainer"][key] for key in ("precision", "gradient_clip_val")}
        usual = "bf16-true" if trainer["precision"] == "bf16-true" else "32-true"
        evaluate = {key: value for key, value in tree["evaluate"].items() if (key, value) != ("precision", usual)}
        if evaluate["windows"] in ("auto", "whole_at_end"):
            last = self.windows[True]
            evaluate["windows"] = None if last == cast(Windows, self.validation.plan).limit else last
        schedule = identified(tree["schedule"], self.schedule, self.steps)
        trunk = {key: value for key, value in schedule.items() if key not in ("decay", "shape")} | {"kind": "trunk"}
        counted = ("model", "size", "objective", "optimizer", "parametrization", "seed")
        spec = {
            "name": self.name,
            **{key: tree[key] for key in counted},
            "schedule": schedule if self.horizon else trunk,
            "data": {**tree["data"], "fingerprint": self.batches.source.fingerprint},
            "train": train,
            "trainer": {**trainer, "max_steps": self.steps} if self.horizon else trainer,
            "evaluate": evaluate if self.horizon else None,
            "versions": self.versions,
        }
        if self.start is not None:
            start = self.start
            spec["start"] = {**start.record, "new": sorted(start.own), "unused": sorted(start.left)}
        if self.teacher is not None:
            described = {key: self.teacher.sections[key] for key in ("model", "size")}
            spec["teacher"] = {"sha256": self.teacher.sha256, **described}
        if tree.get("tuning") is not None:
            spec["tuning"] = tree["tuning"]
        return spec

    def trunk(self) -> tuple[Experiment, int] | None:
        """The trunk that this run may branch from, and the step at which it does. A run that may end early is whole:
        how it ends depends on all its evaluations.
        """
        if not isinstance(self.schedule, WSD) or self.patience is not None:
            return None
        step, rising = self.schedule.cooldown(self.steps), warmup_steps(self.schedule, self.steps)
        # A warmup that is a fraction is one of the run, whose length the trunk does not know.
        schedule = identified(self.config.tree["schedule"], self.schedule, self.steps)
        config = replace(self.config, tree={**self.config.tree, "schedule": schedule})
        return replace(self, config=config, steps=step, schedule=Constant(warmup=rising), horizon=False), step


def assemble(config: Config) -> Experiment:
    """The experiment that a config describes. Whatever is wrong with it is reported here, before anything starts."""
    with config.placing():
        return _assemble(config)


def _assemble(config: Config) -> Experiment:
    _check(config)
    size = BatchSize.of(config["train.batch"])
    pieces = {key: config.build(key) for key in ("optimizer", "schedule", "parametrization")}
    if config["trainer.max_steps"] is not None:
        check(pieces["schedule"], config["trainer.max_steps"])
    start = _start(config)
    data = config.build("data")
    if hasattr(data, "answer"):  # a task, which may take long to read
        check_takes(schema.kinds("objective")[config["objective.kind"]], "examples")
    train, held_out = (data.open(split, root(config["runs"])) for split in ("train", "validation"))
    objective, documents = objective_of(config, train), config["train.documents"]
    is_joined = documents == "mask" and schema.family(config["model"]) not in getattr(objective, "separates", ())
    what = f"{type(objective).__name__} does not keep documents apart for this family"
    config.refuse(is_joined, "train.documents", what, "take join")
    is_endless = documents == "mask" and isinstance(train, MappedSource) and "eos" not in train.specials
    what, fix = "no token of these arrays ends a document", "set data.eos, or take join"
    config.refuse(is_endless, "train.documents", what, fix)
    if start is not None:
        start.check_tokenizer(train)
    config = transfer.balanced(_with_vocabulary(config, objective.vocabulary, start), train)
    remarks = [*config.remarks]
    if (config.tree.get("start") or {}).get("vectors") is not None:
        from scaling.training.start import of_vectors

        start, covered = of_vectors(config, train)
        remarks.append(f"{covered:,} of {config['size.vocabulary']:,} tokens have a vector in {start.name}")
    if start is None and config["parametrization.kind"] == "T5" and config["optimizer.kind"] != "Adafactor":
        moved = f"parametrization T5 draws tables at N(0, 1), which {config['optimizer.kind']} hardly moves"
        remarks.append(f"{moved}: take optimizer={{kind: Adafactor, lr: 0.03}}")
    config = replace(config, remarks=tuple(remarks))
    rows, windows = max(1, EVALUATION_TOKENS // objective.reads), config.tree["evaluate"]["windows"]
    limit = None if isinstance(windows, str) else windows
    validation, _ = evaluation(held_out, objective, rows, limit, documents)
    row = replace(validation, plan=replace(cast(Windows, validation.plan), size=BatchSize.of(1))).batch(0)
    batches = training(train, objective, size, config["seed"], documents)
    row_tokens = _row_tokens(row, validation, batches, size)
    if size.tokens is not None:
        size = replace(size, sizes=(cast(Buckets, batches.plan).rows,))
    is_whole = config["trainer.strategy"] == "fsdp" and not pieces["optimizer"].shardable
    what = f"torch's {type(pieces['optimizer']).__name__} does not work on shards"
    config.refuse(is_whole, "trainer.strategy", what, "take ddp, or another optimizer")
    ranks, rows_at_once = rank_count(config), config["train.micro_batch"] or 1
    least = ranks * rows_at_once
    for rows in size.sizes if objective.takes == "windows" else ():  # batches of pairs and examples vary
        what = f"{rows} rows do not divide into {ranks} devices × {rows_at_once} rows at once"
        config.refuse(rows % least, "train.batch", what, f"take a multiple of {least}")
    model, tuning = blank_model(config)
    transfer.check_head(model, objective, train)
    is_number = KINDS.get(getattr(model.head, "answer", None) or "", Goal).chances is None
    what, fix = "the head predicts a number, and smoothing is of classes", "leave it out"
    config.refuse(config["train.smoothing"] and is_number, "train.smoothing", what, fix)
    is_idle = ranks > 1 and row.labels is None and getattr(model, "sentence", None) is not None
    what, fix = "the objective has no labels for this head, and ranks wait for its gradient", "set it to null"
    config.refuse(is_idle, "model.sentence", what, fix)
    is_tree = any(isinstance(piece, Position) and piece.reads_tree for piece in model.modules())
    fix = "take an encoder, and a task with data.heads"
    config.refuse(row.tree is None and is_tree, "model.position", "it reads a tree, and no batch has one", fix)
    start, names, trained = _selected(config["train.parts"], tuning, model, start)
    experiment = Experiment(
        config=config,
        steps=0,
        **pieces,
        size=size,
        batches=batches,
        validation=validation,
        points=config["evaluate.points"],
        windows=(0, 0),
        row_tokens=row_tokens,
        # The law of the data gives the true loss of a token after those before it, but not of a masked one.
        entropy=None if row.truth is None else held_out.entropy,
        teacher=_teacher(config, objective),
        start=start,
        trained=trained,
        names=names,
        depths={} if config["train.layer_decay"] == 1 else transfer.depths(model),
        versions=schema.versions(config.tree),
    )
    return _budgeted(experiment, config)


def _check(config: Config) -> None:
    """Refuse what no run can have, before data or weights are read."""
    config.check()
    _check_varied(config)
    if (start := config.tree.get("start")) is not None:
        sources = [key for key in ("run", "folder", "vectors") if start.get(key) is not None]
        what = "it names no weights" if not sources else f"it names weights by {' and by '.join(sources)}"
        config.refuse(len(sources) != 1, "start", what, "name one of start.run, start.folder and start.vectors")
        is_step = start.get("step") is not None and sources != ["run"]
        config.refuse(is_step, "start.step", "a file has one set of weights", "leave it out, or name start.run")
    is_missing = "tensorboard" in config["log.loggers"] and find_spec("tensorboard") is None
    fix = "pip install 'scaling[tensorboard]', or leave tensorboard out"
    config.refuse(is_missing, "log.loggers", "the package tensorboard is not installed", fix)
    threads, cores = config["train.threads"], os.cpu_count() or 1
    too_many = threads != "auto" and threads > cores
    config.refuse(too_many, "train.threads", f"there are {plural(cores, 'core')}", "take fewer, or auto")
    is_alone = config["trainer.strategy"] != "auto" and rank_count(config) == 1
    config.refuse(is_alone, "trainer.strategy", "there is one device", "take auto, or trainer.devices=2")


def _check_varied(config: Config) -> None:
    """Refuse two lengths of a run, or none. A value that no one chose, that of defaults.yaml, there or in a config that
    was saved whole, is no second length.
    """
    lengths = {"trainer.max_steps": config.tree["trainer"]["max_steps"], "train.tokens": config.tree["train"]["tokens"]}
    is_epochs, fix = config.tree["train"]["epochs"] is not None, "set train.tokens, trainer.max_steps or train.epochs"
    config.refuse(not is_epochs and not any(lengths.values()), "train.tokens", "a run needs a budget", fix)
    for key, length in lengths.items() if is_epochs else ():
        default = document(shipped() / "defaults.yaml")[key]
        default = quantity(default) if isinstance(default, str) else default
        chosen = length is not None and (config.origin.get(key) == COMMAND_LINE or length != default)
        config.refuse(chosen, "train.epochs", f"{key} sets the length of training too", f"set {key} to null")


def _start(config: Config) -> Start | None:
    """The trained model that a config begins with; None where it draws its weights, or takes word vectors."""
    section = config.tree.get("start")
    if section is None or section.get("vectors") is not None:
        return None
    from scaling.training.start import Start

    return Start.read(config)


def _teacher(config: Config, objective: Any) -> Saved | None:
    """The trained model whose predictions the objective distils."""
    from scaling.objectives.distil import Distil

    if not isinstance(objective, Distil):
        return None
    from scaling.training.start import teacher

    return teacher(config, objective)


def counted(config: Config) -> Cost:
    """The cost of the model of a config, as a run would train it: its parts, on the vocabulary of its start."""
    with config.placing():
        start = _start(config)
        config = sized(config, start)
        if start is None and config["train.parts"] == "all":
            return inspected(config)
        model, tuning = blank_model(config)
        _, _, trained = _selected(config["train.parts"], tuning, model, start)
        return inspected(config, trained)


def _selected(
    named: transfer.Parts, tuning: Tuning | None, model: Family, start: Start | None
) -> tuple[Start | None, frozenset[str], frozenset[str]]:
    """The start as it fits the model, all names, and those that are trained: what the tuning does, what the start does
    not have, and the named parts; without a tuning, the parts.
    """
    all_parameters = parameters(model)
    names = frozenset(spec.name for spec, _ in all_parameters)
    added = {spec.name for spec, _ in all_parameters if spec.slot == ADDED}
    start = None if start is None else start.fitted(model, added)
    new = frozenset() if start is None else start.drawn
    trained = frozenset() if tuning is not None and named == "all" else transfer.trained(model, named, new)
    if tuning is not None:
        trained |= new | {name for name in names if tuning.trains(name)}
    return start, names, trained


def varied(experiment: Experiment, words: Iterable[str]) -> Experiment:
    """What `assemble` would make of the config with other values of `VARIED` keys, at a hundredth of the time."""
    config = compose.varied(experiment.config, words)
    with config.placing():
        return _budgeted(experiment, config)


def _budgeted(experiment: Experiment, config: Config) -> Experiment:
    """The experiment with the seed and the budget of a config."""
    _check_varied(config)
    prepared = experiment.batches
    batches = training(prepared.source, prepared.objective, experiment.size, config.tree["seed"], prepared.documents)
    steps = _steps(config, experiment.size, experiment.row_tokens, batches)
    check(experiment.schedule, steps)
    windows, points = cast(Windows, experiment.validation.plan).limit or 0, config.tree["evaluate"]["points"]
    asked, alike = config.tree["evaluate"]["windows"], config.tree["train"]["patience"] is not None
    if asked == "auto" or (asked == "whole_at_end" and not alike):
        cost, kinds = (experiment.size.before(steps), experiment.row_tokens), {"whole": asked != "auto", "alike": alike}
        points, each, last = affordable(steps, points, windows, *cost, **kinds, evenly=experiment.evenly)
    else:
        each = last = windows
    return replace(experiment, config=config, steps=steps, batches=batches, points=points, windows=(each, last))


def _row_tokens(row: Batch, validation: Batches, batches: Batches, size: BatchSize) -> int:
    """The tokens of a row that the objective makes, on both its sides where it has two. Where rows are of any length,
    or batches of as many tokens, they are the mean of the data's, without filling.
    """
    source, plan = cast(Any, batches.source), batches.plan
    if size.tokens is not None and source.gives == "examples" and cast(Any, batches.objective).writes(source.task):
        return round(float(np.minimum(source.items.written + 1, cast(Buckets, plan).length).sum(1).mean()))
    if size.tokens is not None and source.lengths is not None:
        return round(float(np.minimum(source.lengths, cast(Buckets, plan).length).sum(1).mean()))
    if isinstance(validation.plan, ByLength):
        return round(float(validation.plan.lengths.mean()))
    return row.tokens.numel() + (0 if row.source is None else row.source.numel())


def _steps(config: Config, size: BatchSize, row_tokens: int, batches: Batches) -> int:
    """Updates: as configured, or the fewest that see `train.tokens`, or all the data `train.epochs` times."""
    train, steps = config.tree["train"], config.tree["trainer"]["max_steps"]
    if steps is not None:
        return steps
    needed, reached = train["epochs"], batches.passes
    if needed is None:
        needed, reached = -(-train["tokens"] // row_tokens), size.before
        least = size.size(0) * row_tokens
        what = f"less than one batch of {least:,} tokens"
        config.refuse(train["tokens"] < least, "train.tokens", what, "take a smaller train.batch")
    else:
        fix = "set train.tokens or trainer.max_steps"
        config.refuse(not batches.passes(1), "train.epochs", "the data have no end", fix)
    bound = 1
    while reached(bound) < needed:
        bound *= 2
    return bisect_left(range(bound + 1), needed, lo=1, key=reached)


# The vocabulary: the ids that data and objective need, unless the config gives another number


def _with_vocabulary(config: Config, vocabulary: Vocabulary, start: Start | None = None) -> Config:
    """The config with the ids that the data and the objective need, where it gives none, or where a shipped size has
    fewer. A shipped size that has more keeps them, and so does the model of a start.
    """
    size = config["size"].get("vocabulary")
    if size is not None and size >= vocabulary.size:
        return config
    fix = f"set size.vocabulary to {vocabulary.size}, or to null to take what is needed"
    config.refuse(_is_given(config), "size.vocabulary", f"the data and the objective use {vocabulary.size} ids", fix)
    needed, trained = vocabulary.rounded(config["train.round_vocabulary"]).size, (start and start.vocabulary) or 0
    ids = trained if trained >= vocabulary.size else needed
    return replace(config, tree={**config.tree, "size": {**config["size"], "vocabulary": ids}})


def sized(config: Config, start: Start | None = None) -> Config:
    """The config with the vocabulary that training gives it, to count a model that is not trained.

    Where the data are not prepared, the number of a shipped size is taken.
    """
    if _is_given(config):
        return config
    try:
        objective = objective_of(config, config.build("data").open("train", root(config["runs"])))
    except ScalingError as error:
        if config["size"].get("vocabulary") is not None:
            return config
        raise config.place(error) from None
    return _with_vocabulary(config, objective.vocabulary, start)


def _is_given(config: Config) -> bool:
    """Whether a person gave the vocabulary, on the command line or in a file; a shipped size gives none."""
    if config["size"].get("vocabulary") is None:
        return False
    file = config.origin.get("size.vocabulary", "").rpartition(":")[0]
    return not file or Path(file).resolve().parent != (shipped() / "size").resolve()
