"""Score a run, finetuned or not, let a finetuned run predict, and list the shipped tasks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from scaling.base import atomic
from scaling.base.errors import plural, refuse
from scaling.base.numbers import PositiveInt, Range, Seed
from scaling.base.printing import Table, csv_text, tabulate
from scaling.config import compose
from scaling.config.files import names, shipped
from scaling.config.schema import build
from scaling.evaluation.registry import check_tasks
from scaling.verbs.model import load, torch_device
from scaling.verbs.verb import RUNS, Flag, Output, Result, RunName, verb

Split = Literal["validation", "train", "test"]
Shots = Annotated[int, Range(least=0, most=65_536)]
Rows = Annotated[str | Path | None, Output()]  # a file with one line for each example
INTERVAL = "[{:.4f}, {:.4f}]".format
PLAIN = (str, int, float, bool)  # cells that a CSV has as they are; others are JSON there


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The scores of a run: `metrics` and their 95% `intervals` (docs/json.md); `scored` has a row for each example."""

    scored: Sequence[Mapping[str, Any]] = ()

    def save(self, path: str | Path | None) -> Self:
        """Write a line for each example: JSON, or CSV if the name ends in .csv. The file is whole or absent."""
        if path is not None:
            cells = ({key: json.dumps(c) for key, c in row.items() if type(c) not in PLAIN} for row in self.scored)
            rows = [{**row, **texts} for row, texts in zip(self.scored, cells)]
            atomic.write(Path(path), csv_text(rows) if Path(path).suffix == ".csv" else _json_lines(self.scored))
        return self


@verb
def evaluate(
    run: RunName,
    task: Annotated[str | None, "a task with the same labels as the run's task"] = None,
    *overrides: str,
    split: Split = "validation",
    average: Annotated[PositiveInt | None, "score the mean weights of the last N checkpoints"] = None,
    paired: Annotated[RunName | None, Flag("paired-bootstrap"), "a run to compare with (Koehn 2004)"] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a finetuned run on a split of its task, with 95% intervals over the examples.

        scaling evaluate 8c21                            the validation split of the run's task
        scaling evaluate 8c21 mnli_mismatched            another task with the same labels
        scaling evaluate 8c21 --paired-bootstrap 5d07    is it better than another run on the same examples?

    A run that was not finetuned is scored by `evaluate-options`, `evaluate-corpus` and `evaluate-harness`.
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned, goal

    scored, data = finetuned(run, task, overrides, runs=runs)
    other, other_data = (None, data) if paired is None else finetuned(paired, task, overrides, runs=runs)
    home = root(scored.runs if task is None else runs)
    source = build("data", data).open(split, home)  # before torch is imported
    mine, theirs = goal(data), goal(other_data)
    is_other = (mine.answer, mine.labels) != (theirs.answer, theirs.labels)
    what, fix = "it was finetuned on another kind of answer, or other labels", "name a run of the same task"
    refuse(is_other, what, fix, key="paired-bootstrap", value=paired)
    answers = [example.answer for example in source.examples if example.answer is not None]
    refuse(not answers, "the labels of this split are not published", "take another split", key="split", value=split)

    from scaling.training.evaluation import Predictor

    outputs = Predictor(scored, torch_device(device), average).outputs(source)
    signature, name = source.task.metric.signature(answers), scored.folder.name
    document = {"run": name, "split": split, "examples": len(answers), "invalid": None, **outputs.scores()}
    document |= {"signature": signature, "average": average, "paired": None}
    mean = "" if average is None else f", mean of {plural(average, 'checkpoint')}"
    title = f"run {name}{mean}, {split} split, {plural(len(answers), 'example')}"
    parts = [title, _table(document), *filter(None, [signature])]
    if other is not None:
        # The same examples, by the tokenizer of the other run.
        matched = {**data, **{key: value for key, value in other.data.items() if key == "tokenizer"}}
        of_other = Predictor(other, torch_device(device), average).outputs(build("data", matched).open(split, home))
        one = document["paired"] = {"against": other.folder.name, **outputs.compared(of_other)}
        parts.append(f"run {one['against']}: {one['score_against']:.4f} on the same examples")
        bounds = f"95% interval {INTERVAL(*one['interval'])}, p = {one['p']:.3f}"
        parts.append(f"difference {one['difference']:.4f}, {bounds}")
    return Evaluation(document, parts)


@verb
def evaluate_options(
    run: RunName,
    task: Annotated[str, "a name of `scaling tasks`, or a file"],
    *overrides: str,
    split: Split = "validation",
    shots: Annotated[Shots, "training examples before each question"] = 5,
    formulation: Annotated[Literal["cloze", "letters"], "score the options' texts, or A, B, …"] = "cloze",
    frame: Annotated[Literal["question", "none"], "question frames the text by Question: and Answer:"] = "question",
    seed: Annotated[Seed, "the seed of the shots"] = 0,
    limit: PositiveInt | None = None,
    to: Rows = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a run on a task whose answer is a class or an option, by likelihood.

        scaling evaluate-options 3f2a copa --shots 0
        scaling evaluate-options 3f2a arc.yaml --formulation letters --to each.jsonl

    A decoder or an encoder-decoder answers with the most likely option. (Gu et al. 2024, OLMES) An encoder can if the
    options fill a gap, `[MASK]` in the text, with --frame none.
    """
    from scaling.data.store import root
    from scaling.evaluation.options import Choosing, Prompting, posed, scored
    from scaling.interop.pretrained import pretrained
    from scaling.metrics.metric import bootstrap
    from scaling.training.finetune import unfinetuned

    prompting, source = Prompting(formulation, frame, shots, seed), pretrained(run, runs)
    data = build("data", unfinetuned(source, task, overrides, runs=runs))
    prompt, questions = posed(data, split, root(runs), prompting, limit)  # before torch is imported
    scorer = load(source.folder, device=device).scorer
    examples, truncated = scored(scorer, source.codec, questions, prompting, prompt)
    measured = bootstrap(Choosing(), examples, examples)
    chance = sum(len(one.right) / len(one.options) for one in questions.values()) / len(questions)
    document = {"run": source.folder.name, "task": task, "split": split, "examples": len(questions), "prompt": prompt}
    document |= {**vars(prompting), **measured, "score": measured["metrics"][Choosing.main]}
    document |= {"chance": chance, "truncated": truncated}
    cut = f", {plural(truncated, 'context')} cut to the window" if truncated else ""
    title = f"run {source.folder.name}, {task}, {split} split, {plural(len(questions), 'example')}{cut}"
    rows = [asdict(one) | {f"choice_{name}": value for name, value in one.choices.items()} for one in examples]
    return Evaluation(document, [*filter(None, [prompt]), title, _table(document)], scored=rows).save(to)


@verb
def evaluate_corpus(
    run: RunName,
    corpus: Annotated[str | None, "the name of prepared data (default: the run's data)"] = None,
    *overrides: str,
    split: Literal["validation", "train"] = "validation",
    stride: Annotated[PositiveInt | None, "tokens between windows of a long document (default: half a window)"] = None,
    masking: Annotated[Literal["token", "word"] | None, "the unit that an encoder masks"] = None,
    limit: PositiveInt | None = None,
    to: Rows = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Measure bits per byte and perplexity of a corpus and of its documents.

        scaling evaluate-corpus 3f2a wikitext103
        scaling evaluate-corpus 3f2a --to each.csv      the corpus that the run was trained on

    The corpus must be prepared with the run's tokenizer. Every token of a document is scored once, also its `eos`.
    An encoder masks each token in turn: the nats are a pseudo-likelihood, so it has no bits per byte.
    """
    from scaling.data.store import root
    from scaling.evaluation.corpus import CodeLength, documents, prepared
    from scaling.metrics.metric import bootstrap
    from scaling.training import finetune

    source = finetune.pretrained(run, runs)
    codec, is_encoder, length = source.codec, source.family == "encoder", source.length
    key, value = ("stride", stride) if is_encoder else ("masking", masking)
    refuse(value is not None, f"it does not apply to a run of the family {source.family}", key=key, value=value)
    refuse((stride or 0) > length, f"it is from 1 to the window of {length}", key="stride", value=stride)
    line = finetune.corpus(source, corpus, overrides, runs=runs)
    data = prepared(line, split, root(source.runs if corpus is None else runs), source.tokenizer, codec, corpus)
    refuse(stride and data.gives == "pairs", "pairs are scored whole", "leave it out", key="stride", value=stride)
    scorer, measures = load(source.folder, device=device).scorer, ["bits_per_byte", "perplexity"]
    if is_encoder:
        masking, measures = masking or "token", ["perplexity"]
        scorer = replace(scorer, masking=masking, words=codec.words)
    elif data.gives != "pairs":
        stride = stride or max(1, length // 2)
    scored = documents(islice(data.documents(), limit), codec, scorer, stride or 0)
    read = [document for document in scored if document.tokens]
    refuse(not read, f"the {split} split has no document", "take another split", key="split", value=split)
    measured = bootstrap(CodeLength(), read, read)
    for values in measured.values() if is_encoder else ():
        values.pop("bits_per_byte", None)  # no document spells a byte
    totals = {name: sum(getattr(one, name) for one in read) for name in ("tokens", "bytes", "nats")}
    document = {"run": source.folder.name, "corpus": corpus or "its own", "split": split, "documents": len(read)}
    document |= {**totals, "stride": stride, "masking": masking, **measured}
    counts = ", ".join(plural(document[f"{name}s"], name) for name in ("document", "token", "byte"))
    title = f"run {source.folder.name}, {document['corpus']}, {split} split, {counts}"
    rows = [{**asdict(one), **{name: getattr(one, name) for name in measures}} for one in read]
    return Evaluation(document, [title, _table(document)], scored=rows).save(to)


@verb
def evaluate_harness(
    run: RunName,
    *words: Annotated[str, "tasks (names, YAML files); key=value replaces keys of generation_kwargs"],
    shots: Annotated[Shots | None, "examples before each question (default: the task's number)"] = None,
    limit: Annotated[PositiveInt | None, "score the first N examples of each task only"] = None,
    to: Rows = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a run on tasks of lm-evaluation-harness.

        scaling evaluate-harness 3f2a arc_easy own.yaml
        scaling evaluate-harness 3f2a gsm8k max_gen_toks=64 --limit 100

    The run is a decoder or an encoder-decoder. The package is needed: `pip install 'scaling[harness]'`.
    """
    from importlib.metadata import version

    from scaling.interop.pretrained import pretrained

    tasks = [word for word in words if "=" not in word]
    generation = compose.assignments(word for word in words if "=" in word)
    source = pretrained(run, runs)
    what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
    refuse(source.family == "encoder", what, "finetune it", key="RUN", value=str(run))
    check_tasks(tasks)

    from scaling.evaluation.harness import HarnessModel, run_tasks, table

    model = HarnessModel(source.codec, source.family, source.length, lambda: load(source.folder, device=device).scorer)
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
    return Evaluation(document, [title, table(results)], scored=rows).save(to)


def _table(document: Mapping[str, Any]) -> Table:
    """The values of a metric with their intervals, then the values that have none."""
    rows = [[name, value, INTERVAL(*document["intervals"][name])] for name, value in document["metrics"].items()]
    rows += [[name, document[name], None] for name in ("chance", "invalid") if document.get(name) is not None]
    return tabulate(["", "value", "95% interval"], rows)


class Predictions(Evaluation):
    """The predictions of a run. `scored` has a row for each example: `index`, `prediction` (one class or several, a
    number, an option's number, tags, a text, or None for an invalid output), and a head's `probabilities` of classes.
    """

    @property
    def values(self) -> list[Any]:
        return [row["prediction"] for row in self.scored]

    @property
    def probabilities(self) -> list[Mapping[str, float]]:
        return [row["probabilities"] for row in self.scored if "probabilities" in row]


@verb
def predict(
    run: RunName,
    file: Annotated[str | Path, "the file of the examples"],
    task: Annotated[str | None, "a task with the same labels as the run's task"] = None,
    *overrides: str,
    to: Annotated[Rows, "write the predictions to this file: .jsonl or .csv"] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Predictions:
    """Predict the answers of the examples in a file with a finetuned run.

        scaling predict 8c21 new.jsonl                  prints JSON lines of index, prediction and probabilities
        scaling predict 8c21 new.csv --to answers.csv   writes CSV
        scaling predict 8c21 sentences.de               for a translator: one source sentence in each line

    The file has the task's columns; labels are not needed.
    """
    from scaling.data.store import root
    from scaling.training.finetune import finetuned

    model, line = finetuned(run, task, overrides, runs=runs)
    data = build("data", line)
    what, is_drawn = "a synthetic task has no files", not hasattr(data, "unanswered")
    refuse(is_drawn, what, "use `scaling evaluate`", key="FILE", value=str(file))
    examples = data.unanswered(str(file))  # before torch is imported

    from scaling.training.evaluation import Predictor

    predictor = Predictor(model, torch_device(device))
    predictor.task.goal = replace(predictor.task.goal, decode=data.goal.decode)
    outputs = predictor.outputs(predictor.task.source_of(examples, root(model.runs)))
    answers, labels = outputs.predictions, data.goal.labels
    rows: list[dict[str, Any]] = []
    for index in range(len(examples)):
        rows.append({"index": index, "prediction": data.goal.named(answers.get(index))})
    for index, chances in outputs.probabilities().items():
        rows[index]["probabilities"] = dict(zip(labels, chances, strict=True))
    invalid = sum(row["prediction"] is None for row in rows)
    what = f"{to}: {plural(len(rows), 'prediction')}" + (f", {invalid:,} of invalid outputs" if invalid else "")
    document = {"file": None if to is None else str(to), "predictions": len(rows), "invalid": invalid}
    result = Predictions(document, [_json_lines(rows).rstrip("\n") if to is None else what], scored=rows)
    if to is None:
        document |= {"values": result.values, "probabilities": result.probabilities or None}
    return result.save(to)


def _json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


@verb
def tasks(*, runs: str | Path = RUNS) -> Result:
    """List the shipped tasks: answers, metric, and the number of examples of each prepared split."""
    from scaling.data.store import root
    from scaling.data.task.source import SPLITS

    rows: list[dict[str, Any]] = []
    for name in names("task"):
        task = build("data", compose.load("encoder", [f"data=task/{name}"]).tree["data"])
        counts = task.counts(root(runs)) or {}
        text = (shipped() / "task" / f"{name}.yaml").read_text(encoding="utf-8")
        row = {"task": name, "answer": task.answer, "metric": type(task.goal.metric).__name__}
        row |= {"labels": len(task.goal.labels) or None, **{split: counts.get(split) for split in SPLITS}}
        rows.append({**row, "about": text.partition("\n")[0].lstrip("# ")})
    return Result(rows, [tabulate([*rows[0]], [[*row.values()] for row in rows])])
