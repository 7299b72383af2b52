"""Finetune a run on a task, score it, and let it predict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.api.runs import RUNS, Run, train_config
from scaling.api.words import words
from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    import pandas
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

    from scaling.training.finetune import Finetuned

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SUBMISSIONS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "qqp": "QQP",
    "stsb": "STS-B",
    "mnli": "MNLI-m",
    "mnli_mismatched": "MNLI-mm",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
    "ax": "AX",
}
"""The files of a GLUE submission, by task."""
NAMES = ("mnli", "mnli_mismatched", "qnli", "rte", "ax")
"""Tasks of GLUE that write labels by their names, and not by their numbers."""


@dataclass(frozen=True)
class Evaluation:
    """The score of a finetuned run on a split of a task.

    `metrics` has every value of the task's metric, and `intervals` its 95% interval over the examples. `counts` are
    `references`, `predictions` and `correct` of each class. `invalid` is the fraction of outputs that are no answer, of
    a model that writes. `signature` states the settings and the version of the package that computes BLEU or ROUGE.
    `average` is the number of checkpoints whose mean weights were scored, `ensemble` the runs that wrote together with
    this one, and `paired` the comparison with another run.
    """

    run: str
    split: Split
    examples: int
    score: float
    metrics: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    counts: Mapping[str, Mapping[str, int]]
    invalid: float | None = None
    signature: str | None = None
    average: int | None = None
    ensemble: Sequence[str] = ()
    paired: PairedComparison | None = None


@dataclass(frozen=True)
class PairedComparison:
    """The score of one run less that of `against` on the same examples, with its 95% interval. `p` is the fraction of
    samples of the examples in which the difference has the other sign. (Koehn 2004)
    """

    against: str
    score_against: float
    difference: float
    interval: Sequence[float]
    p: float


@dataclass(frozen=True)
class Predictions:
    """What a run predicts of each example, in their order: the name of a class, names of several, a number, the number
    of an option, a tag for each word, or a text; None of an invalid output.
    """

    answer: str
    labels: Sequence[str]
    values: Sequence[Any]

    def save(self, path: str | Path) -> None:
        """Write JSON lines, or CSV where the name ends in .csv: `index` and `prediction`. The file is whole or not
        there.
        """
        if Path(path).suffix == ".csv":
            rows = [
                (index, value if isinstance(value, str | int | float) else json.dumps(value)) for index, value in self
            ]
            return write(path, separated([("index", "prediction"), *rows], ","))
        lines = (json.dumps({"index": index, "prediction": value}, ensure_ascii=False) for index, value in self)
        write(path, "".join(f"{line}\n" for line in lines))

    def save_submission(self, path: str | Path, task: str) -> None:
        """Write the file that GLUE's server takes for a task: TSV of `index` and `prediction`."""
        if task not in SUBMISSIONS:
            fix = f"choose from {', '.join(SUBMISSIONS)}"
            raise ScalingError("it is no task of GLUE", key="TASK", value=task, fix=fix)
        rows = [(index, self._submitted(value, task)) for index, value in self]
        write(path, separated([("index", "prediction"), *rows], "\t"))

    def _submitted(self, value: Any, task: str) -> Any:
        if self.answer == "number":
            return f"{min(5.0, max(0.0, 0.0 if value is None else value)):.3f}"
        value = self.labels[0] if value is None else value  # every example takes a label
        return value if task in NAMES else list(self.labels).index(value)

    def __iter__(self) -> Any:
        return iter(enumerate(self.values))

    def __len__(self) -> int:
        return len(self.values)


def finetune(
    run: str | Run,
    task: str,
    *overrides: str,
    runs: str | Path = RUNS,
    overlays: Sequence[str] = (),
    extend: str | None = None,
    again: bool = False,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    loggers: Sequence[Logger] = (),
    **settings: Any,
) -> Run:
    """Train a run further on a task: an ordinary run of the ledger, whose weights begin with those of another.

    `run` is the beginning of an id, a folder, or `STUDY:ROW`; `task` is a name of `scaling.tasks()` or a file. Head,
    tokenizer, objective, epochs and schedule are filled in, and overrides lay other values over them.

        scaling.finetune("3fa9", "cola", train__epochs=5).result["score"]
    """
    from scaling.training.finetune import compose

    source = str(run.path) if isinstance(run, Run) else run
    given = words(overrides, settings)
    config = compose(source, task, given, runs=runs, overlays=overlays, extend=extend)
    return train_config(config, again=again, progress=progress, callbacks=callbacks, loggers=loggers)


def evaluate(
    run: str | Run,
    task: str | None = None,
    *overrides: str,
    split: Split = "validation",
    runs: str | Path = RUNS,
    device: str | None = None,
    average: int | None = None,
    ensemble: Sequence[str | Run] = (),
    paired: str | Run | None = None,
    **settings: Any,
) -> Evaluation:
    """The score of a finetuned run on a split of its task, or of another one with the same labels.

        scaling.evaluate("8c21", split="test").intervals

    `average` takes the mean weights of that many checkpoints, `ensemble` names runs that write their answers together
    with it, and `paired` another run that is scored on the same examples and compared with it by the paired bootstrap.
    """
    given = words(overrides, settings)
    each = [_finetuned(one, task, given, runs) for one in (run, *ensemble, *([] if paired is None else [paired]))]
    others, against = each[1 : len(ensemble) + 1], each[-1] if paired is not None else None
    return evaluate_finetuned(each[0], split, runs, device, average, others, against)


def evaluate_finetuned(
    finetuned: Finetuned,
    split: Split,
    runs: str | Path,
    device: str | None,
    average: int | None = None,
    ensemble: Sequence[Finetuned] = (),
    paired: Finetuned | None = None,
) -> Evaluation:
    if split not in SPLITS:
        raise ScalingError("there is no such split", key="--split", value=split, fix=nearest(split, SPLITS))
    from scaling.data.store import root
    from scaling.schema import build

    source = build("data", finetuned.data).open(split, root(runs))  # before torch is imported
    if all(example.answer is None for example in source.examples):
        fix = "take another split, or `scaling predict`"
        raise ScalingError(f"the labels of the {split} split are kept back", key="--split", value=split, fix=fix)

    from scaling.api.model import _device
    from scaling.training.predict import Predictor, shown
    from scaling.training.scores import scores

    if average is not None and average < 1:
        raise ScalingError("expected a positive number", key="--average", value=average)
    predictor = Predictor.of(finetuned, runs, _device(device), average, ensemble)
    predictions, written = predictor.predictions(source)
    scored = scores(source, predictions, written=written)
    comparison = None
    if paired is not None:
        theirs, _ = Predictor.of(paired, runs, _device(device), average).predictions(source)
        comparison = _compared(source, predictions, theirs, paired.folder.name)
    labelled = [index for index, example in enumerate(source.examples) if example.answer is not None]
    pairs = [
        [shown(value, source.task.labels, source.task.answer) for value in values]
        for values in (
            [predictions.get(index) for index in labelled],
            [source.examples[index].answer for index in labelled],
        )
    ]
    return Evaluation(
        run=finetuned.folder.name,
        split=split,
        examples=len(labelled),
        score=scored["score"],
        metrics=scored["metrics"],
        intervals=scored["intervals"],
        counts=source.task.metric.counts(*pairs),
        invalid=scored.get("invalid"),
        signature=source.task.metric.signature(pairs[1]),
        average=average,
        ensemble=[other.folder.name for other in ensemble],
        paired=comparison,
    )


def _compared(source: Any, ours: Mapping[int, Any], theirs: Mapping[int, Any], against: str) -> PairedComparison:
    """One run's predictions with another's, of the examples whose answer is known."""
    from scaling.metric import paired_bootstrap
    from scaling.training.scores import grouped

    examples, metric = source.examples, source.task.metric
    labelled = [index for index in sorted(ours) if index >= 0 and examples[index].answer is not None]
    groups = grouped([examples[index].group for index in labelled])
    own, other = ([each.get(index) for index in labelled] for each in (ours, theirs))
    references = [examples[index].answer for index in labelled]
    result = paired_bootstrap(metric, own, other, references, groups)
    score = metric.score(other, references, groups)[metric.main]
    return PairedComparison(against, score, result.difference, [result.low, result.high], result.p)


def predict(
    run: str | Run,
    file: str | Path,
    task: str | None = None,
    *overrides: str,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Predictions:
    """What a finetuned run predicts of the examples of a file, which has the columns of the task without its labels.

    scaling.predict("8c21", "questions.jsonl").save("answers.jsonl")
    """
    return predict_finetuned(_finetuned(run, task, words(overrides, settings), runs), file, runs, device)


def predict_finetuned(finetuned: Finetuned, file: str | Path, runs: str | Path, device: str | None) -> Predictions:
    from scaling.schema import build

    data = build("data", finetuned.data)
    if not hasattr(data, "unanswered"):
        raise ScalingError(
            "a synthetic task has no files", key="--input", value=str(file), fix="use `scaling evaluate`"
        )
    examples = data.unanswered(str(file))  # before torch is imported

    from scaling.api.model import _device
    from scaling.data.store import root
    from scaling.training.predict import Predictor, shown

    predictor = Predictor.of(finetuned, runs, _device(device))
    source = predictor.task.source_of(examples, root(runs))
    predictions, _ = predictor.predictions(source)
    labels, answer = source.task.labels, source.task.answer
    values = [shown(predictions.get(index), labels, answer) for index in range(len(examples))]
    return Predictions(answer, labels, values)


def tasks(runs: str | Path = RUNS) -> pandas.DataFrame:
    """The tasks that are shipped: what is predicted, the metric, and how many examples each split has where the task is
    prepared.
    """
    import pandas

    return pandas.DataFrame(task_rows(runs))


def task_rows(runs: str | Path = RUNS) -> list[dict[str, Any]]:
    """A row for each shipped task."""
    from scaling.config import load, names, shipped
    from scaling.data.store import root
    from scaling.schema import build

    rows = []
    for name in names("task"):
        path = shipped() / "task" / f"{name}.yaml"
        line = load("encoder", [f"data=task/{name}"]).tree["data"]
        task = build("data", line)
        goal = getattr(task, "goal", task)  # a synthetic task is its own
        counts = _counts(task, root(runs))
        rows.append(
            {
                "task": name,
                "answer": task.answer,
                "labels": len(goal.labels) or None,
                "metric": type(goal.metric).__name__,
                **{split: counts.get(split) for split in SPLITS},
                "about": path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "),
            }
        )
    return rows


def _counts(task: Any, folder: Path) -> dict[str, int]:
    """The examples of each split, as far as they are known."""
    if hasattr(task, "counts"):
        return task.counts(folder) or {}
    return {split: task.examples if split == "train" else task.held_out for split in SPLITS}


def _finetuned(run: str | Run, task: str | None, given: Sequence[str], runs: str | Path) -> Finetuned:
    from scaling.training.finetune import finetuned

    return finetuned(str(run.path) if isinstance(run, Run) else run, task, given, runs=runs)


def separated(rows: Sequence[Sequence[Any]], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write(path: str | Path, text: str) -> None:
    from scaling import atomic
    from scaling.errors import from_os

    try:
        atomic.write(Path(path), text)
    except OSError as error:
        raise from_os(error, f"{path} cannot be written") from None
