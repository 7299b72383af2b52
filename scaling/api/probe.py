"""What a run's layers know: linear probes and their control tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.runs import RUNS, Run
from scaling.api.words import words
from scaling.errors import ScalingError

if TYPE_CHECKING:
    import pandas

    from scaling.inside.labelled import Labelled, Reading
    from scaling.inside.probe import LayerScore
    from scaling.training.finetune import Pretrained

RANKS, SUCCESSOR, TREE = "ranks", "successor", "python_tree"
"""What a run's own data can be probed for: the rank of each symbol of a synthetic language and the likeliest symbol
after it; the depth in Python's syntax tree.
"""
TOKENS = 20_000


@dataclass(frozen=True)
class Probe:
    """How well a linear classifier predicts a task from the stream of each layer of a run, on held-out texts.

    `classes` are what is predicted; `train` and `test` count the labelled tokens. `majority` and `type` are the
    accuracy of the commonest class, and of the commonest class of each word or symbol. Layer 0 is what the first block
    is given.
    """

    run: str
    task: str
    step: int | None
    classes: Sequence[str]
    train: int
    test: int
    majority: float
    type: float
    scores: Sequence[LayerScore] = field(repr=False)

    @property
    def layers(self) -> pandas.DataFrame:
        """A row a layer: `accuracy`, `control` (the accuracy of the control task) and `selectivity`, their difference,
        each with the bounds `_low` and `_high` of its 95% interval over the texts.
        """
        import pandas

        return pandas.DataFrame([_row(score) for score in self.scores])

    @property
    def best(self) -> LayerScore:
        """The layer of the highest accuracy."""
        return max(self.scores, key=lambda score: score.accuracy.value)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling probe --json` (docs/json.md)."""
        document = {key: value for key, value in vars(self).items() if key != "scores"}
        return {**document, "classes": list(self.classes), "layers": [asdict(score) for score in self.scores]}


def probe(
    run: str | Path | Run,
    task: str,
    *overrides: str,
    step: int | None = None,
    tokens: int = TOKENS,
    penalty: float = 1e-3,
    seed: int = 0,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Probe:
    """Train a linear classifier on the stream of each layer of a run, and one on a control task, in which each word has
    a class drawn at random. (Hewitt and Liang 2019)

    `task` is a task of tags (a name of `scaling.tasks()` or a file), `ranks` or `successor` of a run that was trained
    on a synthetic language, or `python_tree` of one that was trained on Python. `step` takes the weights of a
    checkpoint; `tokens` are the labelled tokens of each split.

        scaling.probe("3f2a", "conll2003", data__files={"train": "eng.train"}).layers
    """
    from scaling.training.finetune import pretrained

    if tokens < 1:
        raise ScalingError("expected a positive number", key="--tokens", value=tokens)
    if not penalty >= 0:
        raise ScalingError("expected no negative number", key="--penalty", value=penalty)
    source = pretrained(str(run.path) if isinstance(run, Run) else str(run), runs)
    given = words(overrides, settings)
    if given and task in (RANKS, SUCCESSOR, TREE):
        raise ScalingError("it does not apply to what is known of the run's own data", key=given[0], fix="leave it out")
    task_of = {RANKS: _symbols, SUCCESSOR: _symbols, TREE: _trees}.get(task, _task)
    classes, texts = task_of(source, task, given, runs)  # before torch is imported

    from scaling.api.model import Model
    from scaling.inside.labelled import Reading, some
    from scaling.inside.probe import baselines
    from scaling.inside.probe import probe as scored
    from scaling.interop.run import read

    model = Model(read(source.folder, runs, step), device)
    reading = Reading(model.family, model.ids, source.size["length"])
    train, test = (some(texts(split, reading), tokens) for split in ("train", "validation"))
    _check_tokens(model, [*train, *test])
    scores = scored(
        model.module,  # type: ignore[arg-type]
        train,
        test,
        len(classes),
        penalty=penalty,
        seed=seed,
        pad=model.ids.get("pad", 0),
    )
    plain = baselines(train, test)
    return Probe(
        run=source.folder.name,
        task=task,
        step=model.saved.place.get("step"),
        classes=classes,
        train=sum(len(text.labels) for text in train),
        test=sum(len(text.labels) for text in test),
        majority=plain.majority,
        type=plain.type,
        scores=scores,
    )


def _task(source: Pretrained, task: str, given: Sequence[str], runs: str | Path) -> Any:
    from scaling.data.store import root
    from scaling.schema import build
    from scaling.training.finetune import unfinetuned

    built = build("data", unfinetuned(source, task, given, runs=runs))
    if built.answer != "tags":
        fix = "take a task whose answer is tags, as conll2003"
        raise ScalingError(
            f"the answers are {built.answer}, and a probe predicts tags", key="TASK", value=task, fix=fix
        )
    opened = {split: built.open(split, root(runs)) for split in ("train", "validation")}

    def texts(split: str, reading: Reading) -> Any:
        from scaling.inside.labelled import of_task

        return of_task(opened[split], reading)

    return built.goal.labels, texts


def _symbols(source: Pretrained, task: str, given: Sequence[str], runs: str | Path) -> Any:
    from scaling.schema import build

    if source.data.get("kind") != "Synthetic":
        fix = "take a run that was trained on data=synthetic"
        raise ScalingError("only a synthetic language has ranks", key="TASK", value=task, fix=fix)
    law = build("data", source.data)

    def texts(split: str, reading: Reading) -> Any:
        from scaling.inside.labelled import of_ranks, of_successors

        return (of_ranks if task == RANKS else of_successors)(law, split, reading)

    from scaling.inside.labelled import TAGS

    return tuple(map(str, range(TAGS if task == RANKS else law.symbols))), texts


def _trees(source: Pretrained, task: str, given: Sequence[str], runs: str | Path) -> Any:
    from scaling.data.codec import Codec
    from scaling.data.store import root
    from scaling.training.finetune import corpus

    if (source.data.get("corpus") or {}).get("kind") != "Python":
        fix = "take a run that was trained on data=python"
        raise ScalingError("the run was not trained on Python", key="TASK", value=task, fix=fix)
    from scaling.schema import build

    line = corpus(source, None, runs=runs)
    opened = {split: build("data", line).open(split, root(runs)) for split in ("train", "validation")}
    assert source.tokenizer is not None
    codec = Codec.load(source.tokenizer)

    def texts(split: str, reading: Reading) -> Any:
        from scaling.inside.labelled import of_python

        return of_python(opened[split].documents(), codec, reading)

    from scaling.inside.labelled import DEEPEST

    return tuple(str(depth) for depth in range(1, DEEPEST + 1)), texts


def _check_tokens(model: Any, texts: Sequence[Labelled]) -> None:
    largest = max((max(text.tokens) for text in texts), default=0)
    if largest >= (size := model.config["size"]["vocabulary"]):
        what = f"token {largest} is beyond the vocabulary of {size}"
        raise ScalingError(what, key="TASK", fix="take the tokenizer that the run was trained with")


def _row(score: LayerScore) -> dict[str, float]:
    row: dict[str, float] = {"layer": score.layer}
    for name in ("accuracy", "control", "selectivity"):
        interval = getattr(score, name)
        row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return row
