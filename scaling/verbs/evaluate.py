"""Score a run that was not finetuned: options of a task, documents, gaps of prompts, tasks of lm-evaluation-harness."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from scaling.errors import ScalingError, plural
from scaling.printing import interval
from scaling.schema import PositiveInt, Range, Seed
from scaling.verbs.model import load, plain_keys, scorer
from scaling.verbs.overrides import RUNS
from scaling.verbs.overrides import words as given
from scaling.verbs.result import Result, Table
from scaling.verbs.signature import verb
from scaling.verbs.train import Run, named

if TYPE_CHECKING:
    from scaling.metric.metric import Metric
    from scaling.training.finetune import Pretrained

Split = Literal["validation", "train", "test"]
Shots = Annotated[int, Range(least=0, most=65_536)]


@dataclass(frozen=True)
class Scores(Result):
    """The values of a metric, `metrics`, with their 95% intervals over the examples, `intervals`. `scored` has each
    example.
    """

    scored: Sequence[Any] = field(repr=False, default=())

    def save(self, path: str | Path) -> None:
        """Write a line for each example: JSON, or CSV where the name ends in .csv. The file is whole or not there."""
        save_rows(path, self._examples())

    def _examples(self) -> Sequence[Mapping[str, Any]]:
        return [asdict(one) for one in self.scored]

    def _table(self) -> Table:
        rows: list[list[Any]] = []
        for name, value in self.metrics.items():
            low, high = self.intervals[name]
            rows.append([name, value, interval({"low": low, "high": high})])
        more = {name: self.document.get(name) for name in ("chance", "invalid")}
        rows += [[name, value, None] for name, value in more.items() if value is not None]
        return ["", "value", "95% interval"], rows


class OptionEvaluation(Scores):
    """How often a run finds the right option of a task the likeliest, without being trained on the task.

    `metrics` are the accuracy under each normalisation of the likelihood, and the `bits_per_byte` of the right answers.
    `score` is the accuracy under `normalisation`, `chance` that of guessing. `prompt` comes before every question.
    `truncated` counts contexts that lost tokens to the window.
    """

    def _examples(self) -> Sequence[Mapping[str, Any]]:
        return [asdict(one) | {f"choice_{name}": value for name, value in one.choices.items()} for one in self.scored]

    def _title(self) -> str:
        cut = f", {plural(self.truncated, 'context')} cut to the window" if self.truncated else ""
        scored = f"run {self.run}, {self.task}, {self.split} split, {plural(self.examples, 'example')}{cut}"
        return "\n".join(filter(None, (self.prompt, scored)))


@verb
def evaluate_options(
    run: str | Path | Run,
    task: str,
    *overrides: str,
    split: Split = "validation",
    shots: Shots = 5,
    formulation: Literal["cloze", "letters"] = "cloze",
    frame: Literal["question", "none"] = "question",
    normalisation: Literal["raw", "character", "token", "unconditional"] = "character",
    seed: Seed = 0,
    limit: PositiveInt | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> OptionEvaluation:
    """Score a run on a task whose answer is a class or an option, by likelihood.

        scaling evaluate-options 3f2a copa --shots 0
        scaling evaluate-options 3f2a arc.yaml --formulation letters --to each.jsonl

        scaling.evaluate_options("3f2a", "copa", shots=0).metrics["bits_per_byte"]

    A decoder or an encoder-decoder answers with the likeliest option. (Gu et al. 2024, OLMES) key=value are overrides
    of the task, as data.files.validation=FILE.

    Args:
        run: the beginning of a run's id, a folder, or STUDY:ROW
        task: a name of `scaling tasks`, or a file
        split: the split that is scored
        shots: training examples before each question
        formulation: cloze scores the texts of the options, letters scores A, B, …
        frame: question writes "Question: … Answer:", none the text alone
        normalisation: of the likelihood, for the score
        seed: draws the shots
        limit: score the first N examples only
        to: write a line for each example to this file: .jsonl, or .csv
    """
    from scaling.data.codec import Codec
    from scaling.data.store import root
    from scaling.schema import build
    from scaling.scoring.options import Choosing, Prompting, posed, scored
    from scaling.training.finetune import unfinetuned

    prompting = Prompting(formulation, frame, shots, seed)
    source, file = _reader(run, runs, writes=True)
    data = build("data", unfinetuned(source, task, given(overrides, settings), runs=runs))
    prompt, questions = posed(data, split, root(runs), prompting, limit)  # before torch is imported
    answers = scored(scorer(load(source.folder, device=device)), Codec.load(file), questions, prompting, prompt)
    document = {"run": source.folder.name, "task": task, "split": split, "examples": len(questions), "prompt": prompt}
    document |= {**vars(prompting), "normalisation": normalisation, **_values(Choosing(), answers.examples)}
    document |= {"score": document["metrics"][f"accuracy_{normalisation}"]}
    document |= {"chance": answers.chance, "truncated": answers.truncated}
    return OptionEvaluation(document, answers.examples).saved(to)


class ClozeEvaluation(Scores):
    """Which of a few words a run finds the likeliest in the gaps of seven prompts, one for each kind of knowledge that
    pretraining may teach.

    `metrics` are `accuracy`, and `probability`, the mean probability of the right word among the options. Each of
    `prompts` has its `knowledge`, `text`, `options`, the right one first, their `nats`, and the number of the option
    that is `chosen`.
    """

    def _examples(self) -> Sequence[Mapping[str, Any]]:
        return self.prompts

    def _title(self) -> str:
        return f"run {self.run}, {plural(len(self.prompts), 'prompt')}"

    def __str__(self) -> str:
        lines = [super().__str__()]
        for one in self.prompts:
            nats = ", ".join(f"{option} {value:.2f}" for option, value in zip(one["options"], one["nats"]))
            chosen = one["options"][one["chosen"]]
            lines += ["", f"{one['knowledge']}: {one['text']}", f"  chosen: {chosen}; nats: {nats}"]
        return "\n".join(lines)


@verb
def evaluate_cloze(
    run: str | Path | Run, *, to: str | Path | None = None, runs: str | Path = RUNS, device: str | None = None
) -> ClozeEvaluation:
    """Let a run of any family choose words for the gaps of seven prompts.

        scaling evaluate-cloze 3f2a

        scaling.evaluate_cloze("3f2a").metrics["accuracy"]

    The prompts ask for facts, syntax, coreference, lexical semantics, sentiment, reasoning and arithmetic.

    Args:
        run: the beginning of a run's id, a folder, or STUDY:ROW
        to: write a line for each prompt to this file: .jsonl, or .csv
    """
    from scaling.data.codec import Codec
    from scaling.scoring.cloze import PROMPTS, Chosen, masked, written

    source, file = _reader(run, runs)
    model, codec = load(source.folder, device=device), Codec.load(file)
    if source.family == "encoder":
        from scaling.scoring.masked import MaskedScorer

        filled = masked(MaskedScorer(model.module, model.ids, source.size["length"]), codec, PROMPTS)
    else:
        filled = written(scorer(model), codec, model.ids, PROMPTS)
    prompts = [{**asdict(one), "chosen": one.choice} for one in filled]
    chance = sum(1 / len(one.options) for one in filled) / len(filled)
    document = {"run": source.folder.name, "chance": chance, **_values(Chosen(), filled), "prompts": prompts}
    return ClozeEvaluation(document, filled).saved(to)


class CorpusEvaluation(Scores):
    """The nats of the documents of a corpus.

    `metrics` are `bits_per_byte`, `nats_per_token` and `perplexity` of all documents together. Of an encoder the nats
    are those of the pseudo-likelihood under `masking`, which is no code length, so that it has no `bits_per_byte`; of
    others a document that is longer than the window is read in windows, `stride` tokens apart.
    """

    def _examples(self) -> Sequence[Mapping[str, Any]]:
        more = ("bits_per_byte", "perplexity") if self.masking is None else ("perplexity",)
        return [{**asdict(one), **{name: getattr(one, name) for name in more}} for one in self.scored]

    def _title(self) -> str:
        counts = ", ".join(plural(self.document[f"{name}s"], name) for name in ("document", "token", "byte"))
        return f"run {self.run}, {self.corpus}, {self.split} split, {counts}"


@verb
def evaluate_corpus(
    run: str | Path | Run,
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
) -> CorpusEvaluation:
    """Bits per byte and perplexity of a corpus, as a whole and by document.

        scaling evaluate-corpus 3f2a wikitext103
        scaling evaluate-corpus 3f2a --to each.csv      the corpus that the run was trained on

        scaling.evaluate_corpus("3f2a", "wikitext103").metrics["bits_per_byte"]

    The corpus was prepared with the run's tokenizer. Every token of a document is scored once, the `eos` that ends it
    too. An encoder masks each token in turn. key=value are overrides of the data.

    Args:
        run: the beginning of a run's id, a folder, or STUDY:ROW
        corpus: the name of prepared data (the run's own)
        split: the split that is scored
        stride: tokens between the windows of a long document (half a window)
        masking: of an encoder: token, or word to mask the rest of a word too
        limit: score the first N documents only
        to: write a line for each document to this file: .jsonl, or .csv
    """
    from scaling.data.codec import Codec
    from scaling.data.store import root
    from scaling.scoring.corpus import CodeLength, costs, documents, prepared
    from scaling.training.finetune import corpus as line_of

    source, file = _reader(run, runs)
    encoder, length = source.family == "encoder", source.size["length"]
    for name, value, wrong in (("stride", stride, encoder), ("masking", masking, not encoder)):
        if value is not None and wrong:
            raise ScalingError(f"it does not apply to a run of the family {source.family}", key=name, value=value)
    if (stride or 0) > length:
        raise ScalingError(f"it is from 1 to the window of {length}", key="stride", value=stride)
    codec = Codec.load(file)
    line = line_of(source, corpus, given(overrides, settings), runs=runs)
    texts = itertools.islice(prepared(line, split, root(runs), file, codec.sha256, corpus).documents(), limit)
    model = load(source.folder, device=device)
    if encoder:
        from scaling.scoring.masked import MaskedScorer

        stride, masking = None, masking or "token"
        masked = MaskedScorer(model.module, model.ids, length, masking, codec.words)
        ends = set(codec.specials.values())
        texts = ((None, text[:-1] if len(text) and int(text[-1]) in ends else text) for _, text in texts)
        scored = documents(texts, codec, lambda group: masked.nats([text.tolist() for _, text in group]))
    else:
        stride, reader = stride or max(1, length // 2), scorer(model)
        scored = documents(texts, codec, lambda group: costs(reader, group, stride))
    read = [document for document in scored if document.tokens]
    if not read:
        raise ScalingError(f"the {split} split has no document", key="split", value=split, fix="take another split")
    document = {"run": source.folder.name, "corpus": corpus or "its own", "split": split, "documents": len(read)}
    document |= {name: sum(getattr(one, name) for one in read) for name in ("tokens", "bytes", "nats")}
    document |= {"stride": stride, "masking": masking, **_values(CodeLength(), read)}
    if encoder:
        for values in (document["metrics"], document["intervals"]):
            del values["bits_per_byte"]
    return CorpusEvaluation(document, read).saved(to)


@dataclass(frozen=True)
class HarnessEvaluation(Scores):
    """The document of lm-evaluation-harness for a run, with the `results` of each task and group by metric and filter,
    as `acc,none`, and its own `table` of them. `shots` and `generation` replaced what the tasks state, and `limit` took
    the first examples of each.
    """

    table: str = ""

    def __str__(self) -> str:
        return f"run {self.run}, lm_eval {self.lm_eval_version}\n{self.table}"

    def _examples(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"task": one["task"], "index": one["doc_id"], "filter": one["filter"], "prompt": one["arguments"][0][0]}
            | {"target": one["target"], "responses": one["filtered_resps"]}
            | {"metrics": {name: one[name] for name in one["metrics"]}}
            for one in self.scored
        ]

    def _table(self) -> Table:
        rows = [[task, *pair] for task, values in self.results.items() for pair in values.items()]
        return ["task", "metric", "value"], rows


@verb
def evaluate_harness(
    run: str | Path | Run,
    *words: str | Sequence[str],
    shots: Shots | None = None,
    limit: PositiveInt | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> HarnessEvaluation:
    """Score a run on tasks of lm-evaluation-harness.

        scaling evaluate-harness 3f2a arc_easy own.yaml
        scaling evaluate-harness 3f2a gsm8k max_gen_toks=64 --limit 100

        scaling.evaluate_harness("3f2a", "arc_easy", "own.yaml", limit=100).results["arc_easy"]["acc,none"]

    It takes a decoder or an encoder-decoder, and the package: `pip install 'scaling[harness]'`.

    Args:
        run: the beginning of a run's id, a folder, or STUDY:ROW
        words: tasks (names of the harness, YAML files, folders), and key=value in place of their generation_kwargs
        shots: examples before each question (what the task states)
        limit: score the first N examples of each task only
        to: write a line for each example to this file: .jsonl, or .csv
    """
    from importlib.metadata import version

    from scaling.data.codec import Codec
    from scaling.scoring.registry import check_tasks

    listed = [word for one in words for word in ([one] if isinstance(one, str) else one)]
    tasks = [word for word in listed if "=" not in word]
    generation = plain_keys(given([word for word in listed if "=" in word], settings))
    source, file = _reader(run, runs, writes=True)
    check_tasks(tasks)
    from scaling.scoring.harness import HarnessModel, plain, run_tasks, table

    length, codec = source.size["length"], Codec.load(file)
    model = HarnessModel(codec, source.family, length, lambda: scorer(load(source.folder, device=device)))
    results = run_tasks(model, tasks, shots, limit, generation)
    samples = plain(results.pop("samples"))
    document = {"run": source.folder.name, "lm_eval_version": version("lm_eval"), "shots": shots, "limit": limit}
    document |= {"generation": generation, **{key.replace("-", "_"): value for key, value in plain(results).items()}}
    scored = [{"task": task, **one} for task, examples in samples.items() for one in examples]
    return HarnessEvaluation(document, scored, table(results)).saved(to)


def _reader(run: str | Path | Run, runs: str | Path, *, writes: bool = False) -> tuple[Pretrained, Path]:
    """A run that reads text, and its tokenizer; with `writes` one that gives a continuation a likelihood."""
    from scaling.training.finetune import pretrained

    source = pretrained(named(run), runs)
    if writes and source.family == "encoder":
        what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    if source.tokenizer is None:
        what, fix = "the run has no tokenizer, so it reads no text", "take a run that was trained on text"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix=fix)
    return source, source.tokenizer


def _values(metric: Metric, examples: Sequence[Any]) -> dict[str, Any]:
    """The values of a metric, and their intervals."""
    from scaling.metric import bootstrap

    values = bootstrap(metric, examples, examples).items()
    return {
        "metrics": {name: one.value for name, one in values},
        "intervals": {name: [one.low, one.high] for name, one in values},
    }


def json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def save_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, or CSV where the name ends in .csv. The file is whole or not there."""
    from scaling import atomic

    text = io.StringIO()
    if Path(path).suffix == ".csv":
        table = csv.writer(text, lineterminator="\n")
        table.writerow(rows[0] if rows else ())
        for row in rows:
            table.writerow(one if isinstance(one, str | int | float) else json.dumps(one) for one in row.values())
    else:
        text.write(json_lines(rows))
    atomic.write(Path(path), text.getvalue())
