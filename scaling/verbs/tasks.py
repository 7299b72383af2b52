"""Score a finetuned run, let it predict, and list the tasks that are shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.errors import ScalingError, plural
from scaling.printing import columns, html_table, interval
from scaling.schema import PositiveInt
from scaling.verbs.evaluate import Scores, Split, json_lines, save_rows
from scaling.verbs.model import torch_device
from scaling.verbs.overrides import RUNS, words
from scaling.verbs.result import Result
from scaling.verbs.signature import Flag, verb
from scaling.verbs.train import Run, named

if TYPE_CHECKING:
    import pandas

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SUBMISSIONS = {"cola": "CoLA", "sst2": "SST-2", "mrpc": "MRPC", "qqp": "QQP", "stsb": "STS-B", "mnli": "MNLI-m"}
SUBMISSIONS |= {"mnli_mismatched": "MNLI-mm", "qnli": "QNLI", "rte": "RTE", "wnli": "WNLI", "ax": "AX"}
"""The files of a GLUE submission, by task."""
NAMES = ("mnli", "mnli_mismatched", "qnli", "rte", "ax")
"""Tasks of GLUE that write labels by their names, and not by their numbers."""


class Evaluation(Scores):
    """The score of a finetuned run on a split of a task.

    `metrics` has every value of the task's metric, and `intervals` its 95% interval over the examples. `counts` are
    `references`, `predictions` and `correct` of each class. `invalid` is the fraction of outputs that are no answer, of
    a model that writes. `signature` states the settings and the version of the package that computes BLEU or ROUGE.
    `average` is the number of checkpoints whose mean weights were scored, `ensemble` the runs that wrote together with
    this one. `paired` is the comparison with another run, `against`: `score_against`, the `difference`, its `interval`,
    and `p`, the fraction of samples of the examples in which the difference has the other sign. (Koehn 2004)
    """

    @property
    def paired(self) -> Result | None:
        return None if self.document["paired"] is None else Result(self.document["paired"])

    def _title(self) -> str:
        name = " + ".join([self.run, *self.ensemble])
        mean = "" if self.average is None else f", mean of {plural(self.average, 'checkpoint')}"
        return f"run {name}{mean}, {self.split} split, {plural(self.examples, 'example')}"

    def __str__(self) -> str:
        lines = [super().__str__(), *([] if self.signature is None else [self.signature])]
        if (other := self.paired) is not None:
            between = interval(dict(zip(("low", "high"), other.interval, strict=True)))
            lines.append(f"run {other.against}: {other.score_against:.4f} on the same examples")
            lines.append(f"difference {other.difference:.4f}, 95% interval {between}, p = {other.p:.3f}")
        if self.counts:
            titles = ["references", "predictions", "correct"]
            rows = [[name, *(row[title] for title in titles)] for name, row in self.counts.items()]
            lines += ["", columns(["class", *titles], rows)]
        return "\n".join(lines)


@verb
def evaluate(
    run: str | Path | Run,
    task: str | None = None,
    *overrides: str,
    split: Split = "validation",
    average: PositiveInt | None = None,
    ensemble: Sequence[str | Path | Run] = (),
    paired: Annotated[str | Path | Run | None, Flag("paired-bootstrap")] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a finetuned run on a split of its task, with 95% intervals over the examples.

        scaling evaluate 8c21                            the validation split of the run's own task
        scaling evaluate 8c21 --split test
        scaling evaluate 8c21 mnli_mismatched            another task with the same labels
        scaling evaluate 8c21 --paired-bootstrap 5d07    is it better than another run on the same examples?
        scaling evaluate 8c21 --average 5                the mean of the weights of the last five checkpoints
        scaling evaluate 8c21 --ensemble 5d07,e91a       three runs that write together

        scaling.evaluate("8c21", split="test").intervals

    A run that was not finetuned is scored by `evaluate-options`, `evaluate-corpus`, `evaluate-cloze` and
    `evaluate-harness`. key=value are overrides of the task, as data.files.test=FILE.

    Args:
        run: a finetuned run: the beginning of its id, a folder, or STUDY:ROW
        task: a task with the labels of the run's own
        split: the split that is scored
        average: score the mean weights of the last N checkpoints
        ensemble: a run that writes its answers together with this one; repeats, or names by commas
        paired: a run to compare with on the same examples, by the paired bootstrap
    """
    from scaling.data.store import root
    from scaling.schema import build
    from scaling.training.finetune import finetuned

    together = [word for one in ensemble for word in (one.split(",") if isinstance(one, str) else [named(one)])]
    given = words(overrides, settings)
    own, *others = (finetuned(name, task, given, runs=runs) for name in (named(run), *filter(None, together)))
    other = None if paired is None else finetuned(named(paired), task, given, runs=runs)
    source = build("data", own.data).open(split, root(runs))  # before torch is imported
    labelled = [index for index, example in enumerate(source.examples) if example.answer is not None]
    if not labelled:
        fix = "take another split, or `scaling predict`"
        raise ScalingError(f"the labels of the {split} split are kept back", key="split", value=split, fix=fix)

    from scaling.training.predict import Predictor, shown
    from scaling.training.scores import compared, scores

    predictor = Predictor.of(own, runs, torch_device(device), average, others)
    predictions, written = predictor.predictions(source)
    comparison = None
    if other is not None:
        theirs, _ = Predictor.of(other, runs, torch_device(device), average).predictions(source)
        comparison = {"against": other.folder.name, **compared(source, predictions, theirs)}
    goal = source.task
    found, references = (
        [shown(value, goal.labels, goal.answer) for value in values]
        for values in (map(predictions.get, labelled), (source.examples[index].answer for index in labelled))
    )
    return Evaluation(
        {"run": own.folder.name, "split": split, "examples": len(labelled), "invalid": None}
        | scores(source, predictions, written=written)
        | {"counts": goal.metric.counts(found, references), "signature": goal.metric.signature(references)}
        | {"average": average, "ensemble": [each.folder.name for each in others], "paired": comparison}
    )


@dataclass(frozen=True)
class Predictions:
    """The predictions of a run for each example, in their order: the name of a class, names of several, a number, the
    number of an option, a tag for each word, or a text; None of an invalid output. `file` is where they were written.
    """

    answer: str
    labels: Sequence[str]
    values: Sequence[Any]
    file: str | None = None

    def save(self, path: str | Path) -> None:
        """Write JSON lines, or CSV where the name ends in .csv: `index` and `prediction`. The file is whole or not
        there.
        """
        save_rows(path, self._rows())

    def save_submission(self, path: str | Path, task: str) -> None:
        """Write the file that GLUE's server takes for a task: TSV of `index` and `prediction`."""
        from scaling import atomic

        if task not in SUBMISSIONS:
            fix = f"choose from {', '.join(SUBMISSIONS)}"
            raise ScalingError("it is no task of GLUE", key="TASK", value=task, fix=fix)
        rows = [("index", "prediction"), *((index, self._submitted(value, task)) for index, value in self)]
        atomic.write(Path(path), "".join(f"{index}\t{value}\n" for index, value in rows))

    def _submitted(self, value: Any, task: str) -> Any:
        if self.answer == "number":
            return f"{min(5.0, max(0.0, 0.0 if value is None else value)):.3f}"
        value = self.labels[0] if value is None else value  # every example takes a label
        return value if task in NAMES else list(self.labels).index(value)

    def _rows(self) -> list[dict[str, Any]]:
        return [{"index": index, "prediction": value} for index, value in self]

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self.values))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def invalid(self) -> int:
        """The number of invalid outputs."""
        return sum(value is None for value in self.values)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling predict --json` (docs/json.md)."""
        values = {"values": list(self.values)} if self.file is None else {}
        return {"file": self.file, "predictions": len(self), "invalid": self.invalid, **values}

    def __str__(self) -> str:
        if self.file is None:
            return json_lines(self._rows()).rstrip("\n")
        invalid = f", {self.invalid:,} of invalid outputs" if self.invalid else ""
        return f"{self.file}: {plural(len(self), 'prediction')}{invalid}"

    def _repr_html_(self) -> str:
        return html_table(["index", "prediction"], list(self))


@verb
def predict(
    run: str | Path | Run,
    file: str | Path,
    task: str | None = None,
    *overrides: str,
    to: str | Path | None = None,
    submission: bool = False,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the answers of the examples in a file with a finetuned run.

        scaling predict 8c21 new.jsonl                      prints JSON lines of index and prediction
        scaling predict 8c21 new.csv --to answers.csv       writes CSV
        scaling predict 8c21 sentences.de                   of a translator: the source alone, a line each
        scaling predict 8c21 test.tsv cola --submission     writes CoLA.tsv, as GLUE's server takes it

        scaling.predict("8c21", "questions.jsonl").values

    The file has the task's columns; labels are not needed. key=value are overrides of the task, as data.columns=null.

    Args:
        run: a finetuned run: the beginning of its id, a folder, or STUDY:ROW
        file: the examples
        task: a task with the labels of the run's own
        to: write the predictions to this file: .jsonl, or .csv
        submission: write the file of a GLUE submission; TASK names which
    """
    from scaling.data.store import root
    from scaling.schema import build
    from scaling.training.finetune import finetuned

    if submission and task not in SUBMISSIONS:
        fix = f"write the task after the file: {', '.join(SUBMISSIONS)}"
        raise ScalingError("a submission is of a task of GLUE", key="TASK", value=task, fix=fix)
    asked = finetuned(named(run), task, words(overrides, settings), runs=runs)
    data = build("data", asked.data)
    if not hasattr(data, "unanswered"):
        fix = "use `scaling evaluate`"
        raise ScalingError("a synthetic task has no files", key="FILE", value=str(file), fix=fix)
    examples = data.unanswered(str(file))  # before torch is imported

    from scaling.training.predict import Predictor, shown

    predictor = Predictor.of(asked, runs, torch_device(device))
    source = predictor.task.source_of(examples, root(runs))
    found, _ = predictor.predictions(source)
    labels, answer = source.task.labels, source.task.answer
    values = [shown(found.get(index), labels, answer) for index in range(len(examples))]
    predictions = Predictions(answer, labels, values)
    if submission:
        to = to or f"{SUBMISSIONS[str(task)]}.tsv"
        predictions.save_submission(to, str(task))
    elif to is not None:
        predictions.save(to)
    return replace(predictions, file=None if to is None else str(to))


@dataclass(frozen=True)
class Tasks:
    """The tasks that are shipped; `rows` are the document of `scaling tasks --json` (docs/json.md)."""

    rows: Sequence[Mapping[str, Any]]

    @property
    def data(self) -> pandas.DataFrame:
        import pandas

        return pandas.DataFrame(self.rows)

    def to_json(self) -> list[Mapping[str, Any]]:
        return list(self.rows)

    def __str__(self) -> str:
        return columns(list(self.rows[0]), [list(row.values()) for row in self.rows])

    def _repr_html_(self) -> str:
        return html_table(list(self.rows[0]), [list(row.values()) for row in self.rows])


@verb
def tasks(*, runs: str | Path = RUNS) -> Tasks:
    """List the tasks that are shipped: answers, metric, and the examples of each split that is prepared.

    scaling tasks
    scaling tasks runs=/shared/runs    with the counts of what is prepared next to that folder

    scaling.tasks().data               a DataFrame
    """
    from scaling.config import load, names, shipped
    from scaling.data.store import root
    from scaling.schema import build

    rows = []
    for name in names("task"):
        task = build("data", load("encoder", [f"data=task/{name}"]).tree["data"])
        if hasattr(task, "counts"):
            goal, counts = task.goal, task.counts(root(runs)) or {}
        else:  # a synthetic task is its own goal
            goal, counts = task, {split: task.examples if split == "train" else task.held_out for split in SPLITS}
        text = (shipped() / "task" / f"{name}.yaml").read_text(encoding="utf-8")
        row = {"task": name, "answer": task.answer, "metric": type(goal.metric).__name__}
        row |= {"labels": len(goal.labels) or None, **{split: counts.get(split) for split in SPLITS}}
        rows.append({**row, "about": text.partition("\n")[0].lstrip("# ")})
    return Tasks(rows)
