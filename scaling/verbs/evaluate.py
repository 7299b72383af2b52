"""Score a run, finetuned or not, let a finetuned run predict, and list the shipped tasks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural
from scaling.base.printing import csv_text, interval
from scaling.config.compose import assignments, names, shipped
from scaling.config.compose import load as load_config
from scaling.config.schema import PositiveInt, Range, Seed, build
from scaling.evaluation.registry import check_tasks
from scaling.verbs.model import load, torch_device
from scaling.verbs.train import RunName, named
from scaling.verbs.verb import RUNS, Flag, Result, Table, verb

if TYPE_CHECKING:
    from scaling.data.codec import Codec
    from scaling.metrics.metric import Metric
    from scaling.training.finetune import Pretrained

Split = Literal["validation", "train", "test"]
Shots = Annotated[int, Range(least=0, most=65_536)]
TOTALS = ("tokens", "bytes", "nats")
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The scores of a run: `metrics`, and the 95% interval of each over the examples, `intervals`. docs/json.md states
    the keys of each command. `scored` has a row for each example, the rows that `--to` writes.
    """

    scored: Sequence[Mapping[str, Any]] = ()

    @property
    def paired(self) -> Result | None:
        """The comparison with another run, `against`: `score_against`, the `difference`, its `interval`, and `p`, the
        fraction of samples of the examples in which the difference has the other sign. (Koehn 2004)
        """
        return None if self.document.get("paired") is None else Result(self.document["paired"])

    def save(self, path: str | Path) -> None:
        """Write a line for each example: JSON, or CSV where the name ends in .csv. The file is whole or not there."""
        _save(path, self.scored)


@verb
def evaluate(
    run: RunName,
    task: str | None = None,
    *overrides: str,
    split: Split = "validation",
    average: PositiveInt | None = None,
    paired: Annotated[RunName | None, Flag("paired-bootstrap")] = None,
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

        scaling.evaluate("8c21", split="test").intervals

    A run that was not finetuned is scored by `evaluate-options`, `evaluate-corpus` and `evaluate-harness`. key=value
    are overrides of the task, as data.files.test=FILE.

    Args:
        task: a task with the labels of the run's own
        average: score the mean weights of the last N checkpoints
        paired: a run to compare with on the same examples, by the paired bootstrap
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned

    own, data = finetuned(named(run), task, overrides, runs=runs)
    other = None if paired is None else finetuned(named(paired), task, overrides, runs=runs)[0]
    source = build("data", data).open(split, root(runs))  # before torch is imported
    labelled = [index for index, example in enumerate(source.examples) if example.answer is not None]
    if not labelled:
        fix = "take another split, or `scaling predict`"
        raise ScalingError(f"the labels of the {split} split are kept back", key="split", value=split, fix=fix)

    from scaling.training.predict import Predictor, compared, scores

    predictor = Predictor(own, runs, torch_device(device), average)
    predictions, written = predictor.predictions(source)
    comparison = None
    if other is not None:
        theirs, _ = Predictor(other, runs, torch_device(device), average).predictions(source)
        comparison = {"against": other.folder.name, **compared(source, predictions, theirs)}
    signature = source.task.metric.signature([source.examples[index].answer for index in labelled])
    document = {"run": own.folder.name, "split": split, "examples": len(labelled), "invalid": None}
    document |= scores(source, predictions, written=written) | {"signature": signature}
    document |= {"average": average, "paired": comparison}
    mean = "" if average is None else f", mean of {plural(average, 'checkpoint')}"
    parts = [f"run {own.folder.name}{mean}, {split} split, {plural(len(labelled), 'example')}", _table(document)]
    parts += [] if signature is None else [signature]
    if comparison is not None:
        against, value, p = (comparison[key] for key in ("against", "difference", "p"))
        parts.append(f"run {against}: {comparison['score_against']:.4f} on the same examples")
        parts.append(f"difference {value:.4f}, 95% interval {_interval(comparison['interval'])}, p = {p:.3f}")
    return Evaluation(document, parts)


@verb
def evaluate_options(
    run: RunName,
    task: str,
    *overrides: str,
    split: Split = "validation",
    shots: Shots = 5,
    formulation: Literal["cloze", "letters"] = "cloze",
    frame: Literal["question", "none"] = "question",
    seed: Seed = 0,
    limit: PositiveInt | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a run on a task whose answer is a class or an option, by likelihood.

        scaling evaluate-options 3f2a copa --shots 0
        scaling evaluate-options 3f2a arc.yaml --formulation letters --to each.jsonl

        scaling.evaluate_options("3f2a", "copa", shots=0).metrics["bits_per_byte"]

    A decoder or an encoder-decoder answers with the likeliest option. (Gu et al. 2024, OLMES) An encoder does where
    the options fill a gap, `[MASK]` in the text, under --frame none. key=value are overrides of the task, as
    data.files.validation=FILE.

    Args:
        task: a name of `scaling tasks`, or a file
        shots: training examples before each question
        formulation: cloze scores the texts of the options, letters scores A, B, …
        frame: question writes "Question: … Answer:", none the text alone
        seed: draws the shots
    """
    import numpy as np

    from scaling.data.store import root
    from scaling.evaluation.options import Choosing, Prompting, posed, scored
    from scaling.training.finetune import unfinetuned

    prompting = Prompting(formulation, frame, shots, seed)
    source, codec, _ = _reader(run, runs)
    data = build("data", unfinetuned(source, task, overrides, runs=runs))
    prompt, questions = posed(data, split, root(runs), prompting, limit)  # before torch is imported
    examples, truncated = scored(load(source.folder, device=device).scorer, codec, questions, prompting, prompt)
    chance = float(np.mean([len(one.right) / len(one.options) for one in questions.values()]))
    document = {"run": source.folder.name, "task": task, "split": split, "examples": len(questions), "prompt": prompt}
    document |= {**vars(prompting), **_values(Choosing(), examples)}
    document |= {"score": document["metrics"][Choosing.main], "chance": chance, "truncated": truncated}
    cut = f", {plural(truncated, 'context')} cut to the window" if truncated else ""
    title = f"run {source.folder.name}, {task}, {split} split, {plural(len(questions), 'example')}{cut}"
    rows = [asdict(one) | {f"choice_{name}": value for name, value in one.choices.items()} for one in examples]
    return _scored(document, rows, to, *filter(None, [prompt]), title, _table(document))


@verb
def evaluate_corpus(
    run: RunName,
    corpus: str | None = None,
    *overrides: str,
    split: Literal["validation", "train"] = "validation",
    stride: PositiveInt | None = None,
    masking: Literal["token", "word"] | None = None,
    limit: PositiveInt | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Measure bits per byte and perplexity of a corpus, as a whole and by document.

        scaling evaluate-corpus 3f2a wikitext103
        scaling evaluate-corpus 3f2a --to each.csv      the corpus that the run was trained on

        scaling.evaluate_corpus("3f2a", "wikitext103").metrics["bits_per_byte"]

    The corpus was prepared with the run's tokenizer. Every token of a document is scored once, the `eos` that ends it
    too. An encoder masks each token in turn: the nats are a pseudo-likelihood and no code length, so that it has no
    bits per byte. key=value are overrides of the data.

    Args:
        corpus: the name of prepared data (the run's own)
        stride: tokens between the windows of a long document (half a window)
        masking: of an encoder: token, or word to mask the rest of a word too
    """
    from scaling.data.store import root
    from scaling.evaluation.corpus import CodeLength, costs, documents, prepared
    from scaling.training.finetune import corpus as line_of

    source, codec, file = _reader(run, runs)
    encoder, length = source.family == "encoder", source.size["length"]
    for name, value, wrong in (("stride", stride, encoder), ("masking", masking, not encoder)):
        if value is not None and wrong:
            raise ScalingError(f"it does not apply to a run of the family {source.family}", key=name, value=value)
    if (stride or 0) > length:
        raise ScalingError(f"it is from 1 to the window of {length}", key="stride", value=stride)
    line = line_of(source, corpus, overrides, runs=runs)
    data = prepared(line, split, root(runs), file, codec.sha256, corpus)
    pairs = ((None if source is None else source.tolist(), text.tolist()) for source, text in data.documents())
    texts, scorer = itertools.islice(pairs, limit), load(source.folder, device=device).scorer
    if encoder:
        masking, more = masking or "token", ("perplexity",)
        scorer, ends = replace(scorer, masking=masking, words=codec.words), set(codec.specials.values())
        texts = ((None, text[:-1] if text and text[-1] in ends else text) for _, text in texts)
        scored = documents(texts, codec, lambda group: scorer.nats([text for _, text in group]))
    else:
        step = stride = stride or max(1, length // 2)
        more = ("bits_per_byte", "perplexity")
        scored = documents(texts, codec, lambda group: costs(scorer, group, step))
    read = [document for document in scored if document.tokens]
    if not read:
        raise ScalingError(f"the {split} split has no document", key="split", value=split, fix="take another split")
    document: dict[str, Any] = {"run": source.folder.name, "corpus": corpus or "its own", "split": split}
    document |= {"documents": len(read), **{name: sum(getattr(one, name) for one in read) for name in TOTALS}}
    document |= {"stride": stride, "masking": masking, **_values(CodeLength(), read)}
    if encoder:
        del document["metrics"]["bits_per_byte"], document["intervals"]["bits_per_byte"]
    counts = ", ".join(plural(document[f"{name}s"], name) for name in ("document", "token", "byte"))
    title = f"run {source.folder.name}, {document['corpus']}, {split} split, {counts}"
    rows = [{**asdict(one), **{name: getattr(one, name) for name in more}} for one in read]
    return _scored(document, rows, to, title, _table(document))


@verb
def evaluate_harness(
    run: RunName,
    *words: str,
    shots: Shots | None = None,
    limit: PositiveInt | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a run on tasks of lm-evaluation-harness.

        scaling evaluate-harness 3f2a arc_easy own.yaml
        scaling evaluate-harness 3f2a gsm8k max_gen_toks=64 --limit 100

        scaling.evaluate_harness("3f2a", "arc_easy", "own.yaml", limit=100).results["arc_easy"]["acc,none"]

    It takes a decoder or an encoder-decoder, and the package: `pip install 'scaling[harness]'`.

    Args:
        words: tasks (names of the harness, YAML files), and key=value in place of their generation_kwargs
        shots: examples before each question (what the task states)
        limit: score the first N examples of each task only
    """
    from importlib.metadata import version

    tasks = [word for word in words if "=" not in word]
    generation = assignments([word for word in words if "=" in word])
    source, codec, _ = _reader(run, runs, writes=True)
    check_tasks(tasks)

    from scaling.evaluation.harness import HarnessModel, run_tasks, table

    length = source.size["length"]
    model = HarnessModel(codec, source.family, length, lambda: load(source.folder, device=device).scorer)
    results = run_tasks(model, tasks, shots, limit, generation)
    samples = results.pop("samples")
    document = {"run": source.folder.name, "lm_eval_version": version("lm_eval"), "shots": shots, "limit": limit}
    document |= {"generation": generation, **{key.replace("-", "_"): value for key, value in results.items()}}
    rows = [
        {"task": task, "index": one["doc_id"], "filter": one["filter"], "prompt": one["arguments"][0][0]}
        | {"target": one["target"], "responses": one["filtered_resps"]}
        | {"metrics": {name: one[name] for name in one["metrics"]}}
        for task, examples in samples.items()
        for one in examples
    ]
    title = f"run {source.folder.name}, lm_eval {document['lm_eval_version']}"
    return _scored(document, rows, to, title, table(results))


def _reader(run: RunName, runs: str | Path, *, writes: bool = False) -> tuple[Pretrained, Codec, Path]:
    """A run that reads text, its tokenizer and the tokenizer's file; with `writes` a run that gives a continuation a
    likelihood.
    """
    from scaling.data.codec import Codec
    from scaling.training.finetune import pretrained

    source = pretrained(named(run), runs)
    if writes and source.family == "encoder":
        what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    if source.tokenizer is None:
        what, fix = "the run has no tokenizer, so it reads no text", "take a run that was trained on text"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix=fix)
    return source, Codec.load(source.tokenizer), source.tokenizer


def _scored(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], to: str | Path | None, *parts: str | Table
) -> Evaluation:
    """The scores of a run, its examples in the file `to`."""
    evaluation = Evaluation(document, parts, scored=rows)
    if to is not None:
        evaluation.save(to)
    return evaluation


def _values(metric: Metric, examples: Sequence[Any]) -> dict[str, Any]:
    """The values of a metric, and their intervals."""
    from scaling.metrics import bootstrap

    values = bootstrap(metric, examples, examples)
    return {
        "metrics": {name: one.value for name, one in values.items()},
        "intervals": {name: [one.low, one.high] for name, one in values.items()},
    }


def _interval(bounds: Sequence[float]) -> str:
    return interval(dict(zip(("low", "high"), bounds, strict=True)))


def _table(document: Mapping[str, Any]) -> Table:
    """The values of a metric with their intervals, then the values that have none."""
    intervals = document["intervals"]
    rows = [[name, value, _interval(intervals[name])] for name, value in document["metrics"].items()]
    rows += [[name, document[name], None] for name in ("chance", "invalid") if document.get(name) is not None]
    return ["", "value", "95% interval"], rows


@dataclass(frozen=True, repr=False)
class Predictions(Result):
    """The predictions of a run, iterated as (index, value): the name of a class, names of several, a number, the number
    of an option, a tag for each word, or a text; None of an invalid output. `probabilities` has the probability of each
    label, by its name, where a head predicts classes.
    """

    values: Sequence[Any] = ()
    probabilities: Sequence[Mapping[str, float]] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row an example: `index`, `prediction`, and `probabilities` where a head predicts classes."""
        rows: list[dict[str, Any]] = [{"index": index, "prediction": value} for index, value in self]
        return [row | {"probabilities": each} for row, each in zip(rows, self.probabilities)] or rows

    def save(self, path: str | Path) -> None:
        """Write the rows as JSON lines, or CSV where the name ends in .csv. The file is whole or not there."""
        _save(path, self.rows)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(enumerate(self.values))

    def __len__(self) -> int:
        return len(self.values)


@verb
def predict(
    run: RunName,
    file: str | Path,
    task: str | None = None,
    *overrides: str,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the answers of the examples in a file with a finetuned run.

        scaling predict 8c21 new.jsonl                  prints JSON lines of index, prediction and probabilities
        scaling predict 8c21 new.csv --to answers.csv   writes CSV
        scaling predict 8c21 sentences.de               of a translator: the source alone, a line each

        scaling.predict("8c21", "questions.jsonl").values

    The file has the task's columns; labels are not needed. key=value are overrides of the task, as data.columns=null.

    Args:
        file: the examples
        task: a task with the labels of the run's own
        to: write the predictions to this file: .jsonl, or .csv
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned

    asked, line = finetuned(named(run), task, overrides, runs=runs)
    data = build("data", line)
    if not hasattr(data, "unanswered"):
        fix = "use `scaling evaluate`"
        raise ScalingError("a synthetic task has no files", key="FILE", value=str(file), fix=fix)
    examples = data.unanswered(str(file))  # before torch is imported

    from scaling.training.predict import Predictor, predicted, probabilities, shown

    predictor = Predictor(asked, runs, torch_device(device))
    source = predictor.task.source_of(examples, root(runs))
    outputs = predictor.outputs(source)
    found, chances, goal = predicted(outputs, source), probabilities(outputs, source), source.task
    values = [shown(found.get(index), goal.labels, goal.answer) for index in range(len(examples))]
    each = [dict(zip(goal.labels, row, strict=True)) for _, row in sorted(chances.items())]
    invalid = sum(value is None for value in values)
    document = {"file": None if to is None else str(to), "predictions": len(values), "invalid": invalid}
    if to is None:
        predictions = Predictions(document | {"values": values, "probabilities": each or None}, (), 0, values, each)
        return replace(predictions, parts=[_json_lines(predictions.rows).rstrip("\n")])
    wrong = f", {invalid:,} of invalid outputs" if invalid else ""
    predictions = Predictions(document, [f"{to}: {plural(len(values), 'prediction')}{wrong}"], 0, values, each)
    predictions.save(to)
    return predictions


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _save(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, or CSV where the name ends in .csv. The file is whole or not there."""

    def cell(value: Any) -> Any:
        return value if isinstance(value, str | int | float) else json.dumps(value)

    cells = ({key: cell(value) for key, value in row.items()} for row in rows)
    atomic.write(Path(path), csv_text([*cells]) if Path(path).suffix == ".csv" else _json_lines(rows))


@verb
def tasks(*, runs: str | Path = RUNS) -> Result:
    """List the shipped tasks: answers, metric, and the number of examples of each prepared split.

    scaling tasks
    scaling tasks runs=/shared/runs    with the counts of what is prepared next to that folder

    scaling.tasks().data               a DataFrame
    """
    from scaling.data.store import root

    rows: list[dict[str, Any]] = []
    for name in names("task"):
        task = build("data", load_config("encoder", [f"data=task/{name}"]).tree["data"])
        if hasattr(task, "counts"):
            goal, counts = task.goal, task.counts(root(runs)) or {}
        else:  # a synthetic task is its own goal
            goal, counts = task, {split: task.examples if split == "train" else task.held_out for split in SPLITS}
        text = (shipped() / "task" / f"{name}.yaml").read_text(encoding="utf-8")
        row = {"task": name, "answer": task.answer, "metric": type(goal.metric).__name__}
        row |= {"labels": len(goal.labels) or None, **{split: counts.get(split) for split in SPLITS}}
        rows.append({**row, "about": text.partition("\n")[0].lstrip("# ")})
    return Result(rows, [([*rows[0]], [[*row.values()] for row in rows])])
