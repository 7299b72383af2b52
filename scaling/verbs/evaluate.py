"""Score a run, finetuned or not, let a finetuned run predict, and list the shipped tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural
from scaling.base.printing import csv_text
from scaling.config.compose import assignments, names, shipped
from scaling.config.compose import load as load_config
from scaling.config.schema import PositiveInt, Range, Seed, build
from scaling.evaluation.registry import check_tasks
from scaling.verbs.model import load, torch_device
from scaling.verbs.verb import RUNS, Flag, Result, RunName, Table, verb

if TYPE_CHECKING:
    from scaling.metrics.metric import Interval

Split = Literal["validation", "train", "test"]
Shots = Annotated[int, Range(least=0, most=65_536)]
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The scores of a run: `metrics`, and the 95% interval of each over the examples, `intervals`. docs/json.md states
    the keys of each command. `scored` has a row for each example, the rows that `--to` writes.
    """

    scored: Sequence[Mapping[str, Any]] = ()

    def save(self, path: str | Path) -> None:
        """Write a line for each example: JSON, or CSV where the name ends in .csv. The file is whole or not there."""
        text = _json_lines(self.scored)
        if Path(path).suffix == ".csv":
            rows = [dict(row) for row in self.scored]
            for row in rows:
                row |= {key: json.dumps(cell) for key, cell in row.items() if not isinstance(cell, str | int | float)}
            text = csv_text(rows)
        atomic.write(Path(path), text)

    def saved(self, path: str | Path | None) -> Self:
        """The same, after it is written to a file, if one is named."""
        if path is not None:
            self.save(path)
        return self


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
        scaling evaluate 8c21 mnli_mismatched            another task with the same labels
        scaling evaluate 8c21 --paired-bootstrap 5d07    is it better than another run on the same examples?

        scaling.evaluate("8c21", split="test").intervals

    A run that was not finetuned is scored by `evaluate-options`, `evaluate-corpus` and `evaluate-harness`. key=value
    are overrides of the task, as data.files.test=FILE.

    Args:
        task: a task with the labels of the run's own
        average: score the mean weights of the last N checkpoints
        paired: a run to compare with on the same examples, by the paired bootstrap (Koehn 2004)
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned

    own, data = finetuned(run, task, overrides, runs=runs)
    other = None if paired is None else finetuned(paired, task, overrides, runs=runs)[0]
    source = build("data", data).open(split, root(runs))  # before torch is imported
    answers = [example.answer for example in source.examples if example.answer is not None]
    if not answers:
        fix = "take another split, or `scaling predict`"
        raise ScalingError(f"the labels of the {split} split are kept back", key="split", value=split, fix=fix)

    from scaling.training.evaluation import Predictor, compared, predicted, scores

    outputs, comparison = Predictor(own, runs, torch_device(device), average).outputs(source), None
    predictions = predicted(outputs, source)
    if other is not None:
        theirs = predicted(Predictor(other, runs, torch_device(device), average).outputs(source), source)
        comparison = {"against": other.folder.name, **compared(source, predictions, theirs)}
    signature = source.task.metric.signature(answers)
    document = {"run": own.folder.name, "split": split, "examples": len(answers), "invalid": None}
    document |= scores(source, predictions, written=outputs.written)
    document |= {"signature": signature, "average": average, "paired": comparison}
    mean = "" if average is None else f", mean of {plural(average, 'checkpoint')}"
    parts = [f"run {own.folder.name}{mean}, {split} split, {plural(len(answers), 'example')}", _table(document)]
    parts += [] if signature is None else [signature]
    if comparison is not None:
        bounds, p = _interval(comparison["interval"]), comparison["p"]
        parts.append(f"run {comparison['against']}: {comparison['score_against']:.4f} on the same examples")
        parts.append(f"difference {comparison['difference']:.4f}, 95% interval {bounds}, p = {p:.3f}")
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
    from scaling.data.store import root
    from scaling.evaluation.options import Choosing, Prompting, posed, scored
    from scaling.metrics import bootstrap
    from scaling.training.finetune import pretrained, unfinetuned

    prompting, source = Prompting(formulation, frame, shots, seed), pretrained(run, runs)
    data = build("data", unfinetuned(source, task, overrides, runs=runs))
    prompt, questions = posed(data, split, root(runs), prompting, limit)  # before torch is imported
    scorer = load(source.folder, device=device).scorer
    examples, truncated = scored(scorer, source.codec, questions, prompting, prompt)
    values = bootstrap(Choosing(), examples, examples)
    chance = sum(len(one.right) / len(one.options) for one in questions.values()) / len(questions)
    document = {"run": source.folder.name, "task": task, "split": split, "examples": len(questions), "prompt": prompt}
    document |= {**vars(prompting), **_values(values), "score": values[Choosing.main].value}
    document |= {"chance": chance, "truncated": truncated}
    cut = f", {plural(truncated, 'context')} cut to the window" if truncated else ""
    title = f"run {source.folder.name}, {task}, {split} split, {plural(len(questions), 'example')}{cut}"
    rows = [asdict(one) | {f"choice_{name}": value for name, value in one.choices.items()} for one in examples]
    return Evaluation(document, [*filter(None, [prompt]), title, _table(document)], scored=rows).saved(to)


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
    from scaling.metrics import bootstrap
    from scaling.training.finetune import corpus as line_of
    from scaling.training.finetune import pretrained

    source = pretrained(run, runs)
    codec, encoder, length = source.codec, source.family == "encoder", source.size["length"]
    for name, value, wrong in (("stride", stride, encoder), ("masking", masking, not encoder)):
        if value is not None and wrong:
            raise ScalingError(f"it does not apply to a run of the family {source.family}", key=name, value=value)
    if (stride or 0) > length:
        raise ScalingError(f"it is from 1 to the window of {length}", key="stride", value=stride)
    line = line_of(source, corpus, overrides, runs=runs)
    data = prepared(line, split, root(runs), source.tokenizer, codec.sha256, corpus)
    pairs = ((None if source is None else source.tolist(), text.tolist()) for source, text in data.documents())
    scorer = load(source.folder, device=device).scorer
    if encoder:
        masking, more = masking or "token", ["perplexity"]
        scorer, ends = replace(scorer, masking=masking, words=codec.words), set(codec.specials.values())
        pairs = ((None, text[:-1] if text and text[-1] in ends else text) for _, text in pairs)
    else:
        stride, more = stride or max(1, length // 2), ["bits_per_byte", "perplexity"]
    scored = documents(islice(pairs, limit), codec, lambda group: costs(scorer, group, stride or 0))
    read = [document for document in scored if document.tokens]
    if not read:
        raise ScalingError(f"the {split} split has no document", key="split", value=split, fix="take another split")
    values = bootstrap(CodeLength(), read, read)
    if encoder:
        del values["bits_per_byte"]
    totals = {name: sum(getattr(one, name) for one in read) for name in ("tokens", "bytes", "nats")}
    document = {"run": source.folder.name, "corpus": corpus or "its own", "split": split, "documents": len(read)}
    document |= {**totals, "stride": stride, "masking": masking, **_values(values)}
    counts = ", ".join(plural(document[f"{name}s"], name) for name in ("document", "token", "byte"))
    title = f"run {source.folder.name}, {document['corpus']}, {split} split, {counts}"
    rows = [{**asdict(one), **{name: getattr(one, name) for name in more}} for one in read]
    return Evaluation(document, [title, _table(document)], scored=rows).saved(to)


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

    It takes a decoder or an encoder-decoder, and the package: `pip install 'scaling[harness]'`.

    Args:
        words: tasks (names of the harness, YAML files), and key=value in place of their generation_kwargs
        shots: examples before each question (what the task states)
        limit: score the first N examples of each task only
    """
    from importlib.metadata import version

    from scaling.training.finetune import pretrained

    tasks, generation = [word for word in words if "=" not in word], assignments(word for word in words if "=" in word)
    source = pretrained(run, runs)
    if source.family == "encoder":
        what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    codec = source.codec
    check_tasks(tasks)

    from scaling.evaluation.harness import HarnessModel, run_tasks, table

    model = HarnessModel(codec, source.family, source.size["length"], lambda: load(source.folder, device=device).scorer)
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
    return Evaluation(document, [title, table(results)], scored=rows).saved(to)


def _values(values: Mapping[str, Interval]) -> dict[str, Any]:
    return {
        "metrics": {name: one.value for name, one in values.items()},
        "intervals": {name: [one.low, one.high] for name, one in values.items()},
    }


def _interval(bounds: Sequence[float]) -> str:
    return f"[{bounds[0]:.4f}, {bounds[1]:.4f}]"


def _table(document: Mapping[str, Any]) -> Table:
    """The values of a metric with their intervals, then the values that have none."""
    rows = [[name, value, _interval(document["intervals"][name])] for name, value in document["metrics"].items()]
    rows += [[name, document[name], None] for name in ("chance", "invalid") if document.get(name) is not None]
    return ["", "value", "95% interval"], rows


class Predictions(Evaluation):
    """The predictions of a run, iterated as (index, value): the name of a class, names of several, a number, the number
    of an option, a tag for each word, or a text; None of an invalid output. `scored` has a row for each example:
    `index`, `prediction`, and `probabilities` of the labels by name where a head predicts classes.
    """

    @property
    def values(self) -> list[Any]:
        return [row["prediction"] for row in self.scored]

    @property
    def probabilities(self) -> list[Mapping[str, float]]:
        return [row["probabilities"] for row in self.scored if "probabilities" in row]

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return enumerate(self.values)

    def __len__(self) -> int:
        return len(self.scored)


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

    The file has the task's columns; labels are not needed. key=value are overrides of the task, as data.columns=null.

    Args:
        file: the examples
        task: a task with the labels of the run's own
        to: write the predictions to this file: .jsonl, or .csv
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned

    asked, line = finetuned(run, task, overrides, runs=runs)
    data = build("data", line)
    if not hasattr(data, "unanswered"):
        fix = "use `scaling evaluate`"
        raise ScalingError("a synthetic task has no files", key="FILE", value=str(file), fix=fix)
    examples = data.unanswered(str(file))  # before torch is imported

    from scaling.training.evaluation import Predictor, predicted, probabilities, shown

    predictor = Predictor(asked, runs, torch_device(device))
    source = predictor.task.source_of(examples, root(runs))
    outputs, goal = predictor.outputs(source), source.task
    found, chances = predicted(outputs, source), probabilities(outputs, source)
    rows: list[dict[str, Any]] = []
    for index in range(len(examples)):
        row = {"index": index, "prediction": shown(found.get(index), goal.labels, goal.answer)}
        named = {"probabilities": dict(zip(goal.labels, chances[index], strict=True))} if chances else {}
        rows.append(row | named)
    invalid = sum(row["prediction"] is None for row in rows)
    document = {"file": None if to is None else str(to), "predictions": len(rows), "invalid": invalid}
    predictions = Predictions(document, scored=rows)
    if to is None:
        document |= {"values": predictions.values, "probabilities": predictions.probabilities or None}
        return Predictions(document, [_json_lines(rows).rstrip("\n")], scored=rows)
    wrong = f", {invalid:,} of invalid outputs" if invalid else ""
    return replace(predictions, parts=[f"{to}: {plural(len(rows), 'prediction')}{wrong}"]).saved(to)


def _json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


@verb
def tasks(*, runs: str | Path = RUNS) -> Result:
    """List the shipped tasks: answers, metric, and the number of examples of each prepared split.

    scaling tasks
    scaling tasks runs=/shared/runs    with the counts of what is prepared next to that folder
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
