"""What a run can do without finetuning."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.api.runs import RUNS, Run
from scaling.api.tasks import SPLITS, Split, separated, write
from scaling.api.words import words
from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.api.model import Model
    from scaling.scoring.cloze import Filled
    from scaling.scoring.corpus import Document
    from scaling.scoring.likelihood import Scorer
    from scaling.scoring.options import Scored
    from scaling.training.finetune import Pretrained


@dataclass(frozen=True)
class OptionEvaluation:
    """How often a run finds the right option of a task the likeliest, without being trained on the task.

    `metrics` are `accuracy_raw`, `accuracy_character`, `accuracy_token` and `accuracy_unconditional`, one for each
    normalisation of the likelihood, and `bits_per_byte` of the right answers; `intervals` are their 95% intervals over
    the examples. `score` is the accuracy under `normalisation`, `chance` that of guessing. `prompt` is what comes
    before every question. `truncated` counts contexts that lost tokens to the window.
    """

    run: str
    task: str
    split: Split
    examples: int
    formulation: Literal["cloze", "letters"]
    frame: Literal["question", "none"]
    shots: int
    seed: int
    prompt: str
    normalisation: Literal["raw", "character", "token", "unconditional"]
    score: float
    chance: float
    metrics: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    truncated: int
    scored: Sequence[Scored] = field(repr=False, default=())

    def save(self, path: str | Path) -> None:
        """Write a line for each example, JSON or CSV where the name ends in .csv: its `index`, the options' `nats`,
        `unconditional` nats, `tokens`, `characters` and `bytes`, the `right` options, and the one that is chosen under
        each normalisation.
        """
        rows = [
            {**asdict(question), **{f"choice_{name}": value for name, value in question.choices.items()}}
            for question in self.scored
        ]
        save_rows(path, rows)


def evaluate_options(
    run: str | Run,
    task: str,
    *overrides: str,
    split: Split = "validation",
    shots: int = 5,
    formulation: Literal["cloze", "letters"] = "cloze",
    frame: Literal["question", "none"] = "question",
    normalisation: Literal["raw", "character", "token", "unconditional"] = "character",
    seed: int = 0,
    limit: int | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> OptionEvaluation:
    """Score a decoder or an encoder-decoder on a task whose answer is a class or an option, without finetuning: the
    likeliest option is its answer. (Gu et al. 2024, OLMES)

    `limit` takes the first examples only.

        scaling.evaluate_options("3f2a", "copa", shots=0).metrics["bits_per_byte"]
    """
    from scaling.build import build
    from scaling.data.codec import Codec
    from scaling.data.store import root
    from scaling.metric import bootstrap
    from scaling.scoring.options import NORMALISATIONS, Choosing, Prompting, drawn, questions, scored
    from scaling.training.finetune import pretrained, unfinetuned

    for flag, value, choices in (("--split", split, SPLITS), ("--normalisation", normalisation, NORMALISATIONS)):
        if value not in choices:
            raise ScalingError("there is no such choice", key=flag, value=value, fix=nearest(value, choices))
    _check_limit(limit)
    prompting = Prompting(formulation, frame, shots, seed)
    source = pretrained(_name(run), runs)
    if source.family == "encoder":
        what = "an encoder sees what comes after a token, so it has no likelihood of an option"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    data = unfinetuned(source, task, words(overrides, settings), runs=runs)
    assert source.tokenizer is not None
    opened = build("data", data)
    posed = questions(opened.open(split, root(runs)))  # before torch is imported
    head = ""
    if shots:
        train = posed if split == "train" else questions(opened.open("train", root(runs)))
        chosen = drawn(train, shots, seed)
        head = prompting.head([train[index] for index in chosen])
        posed = {index: question for index, question in posed.items() if split != "train" or index not in chosen}
    posed = dict(itertools.islice(posed.items(), limit))
    if not posed:
        fix = "take another split"
        raise ScalingError(f"the {split} split has no example to score", key="--split", value=split, fix=fix)
    scorer = _scorer(_model(source, runs, device), source.size["length"])
    answers = scored(scorer, Codec.load(source.tokenizer), posed, prompting, head)
    values = bootstrap(Choosing(), answers.examples, answers.examples)
    return OptionEvaluation(
        run=source.folder.name,
        task=task,
        split=split,
        examples=len(posed),
        formulation=formulation,
        frame=frame,
        shots=shots,
        seed=seed,
        prompt=head,
        normalisation=normalisation,
        score=values[f"accuracy_{normalisation}"].value,
        chance=answers.chance,
        metrics={name: metric.value for name, metric in values.items()},
        intervals={name: [metric.low, metric.high] for name, metric in values.items()},
        truncated=answers.truncated,
        scored=answers.examples,
    )


@dataclass(frozen=True)
class ClozeEvaluation:
    """Which of a few words a run finds the likeliest in the gaps of seven prompts, one for each kind of knowledge that
    pretraining may teach.

    `metrics` are `accuracy`, and `probability`, the mean probability of the right word among the options; `intervals`
    are their 95% intervals over the prompts.
    """

    run: str
    prompts: int
    chance: float
    metrics: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    scored: Sequence[Filled] = field(repr=False, default=())

    def save(self, path: str | Path) -> None:
        """Write a line for each prompt, JSON or CSV where the name ends in .csv: its `knowledge`, `text`, `options`,
        the right one first, their `nats`, and the number of the option that is `chosen`.
        """
        save_rows(path, [{**asdict(one), "chosen": one.choice} for one in self.scored])


def evaluate_cloze(run: str | Run, *, runs: str | Path = RUNS, device: str | None = None) -> ClozeEvaluation:
    """Let a run of any family choose words for the gaps of seven prompts, without finetuning.

    scaling.evaluate_cloze("3f2a").metrics["accuracy"]
    """
    from scaling.data.codec import Codec
    from scaling.metric import bootstrap
    from scaling.scoring.cloze import PROMPTS, Chosen, masked, written
    from scaling.training.finetune import pretrained

    source = pretrained(_name(run), runs)
    if source.tokenizer is None:
        what, fix = "the run has no tokenizer, so it reads no text", "take a run that was trained on text"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix=fix)
    model, codec, length = _model(source, runs, device), Codec.load(source.tokenizer), source.size["length"]
    if source.family == "encoder":
        from scaling.scoring.masked import MaskedScorer

        filled = masked(MaskedScorer(model.module, model.ids, length), codec, PROMPTS)  # type: ignore[arg-type]
    else:
        filled = written(_scorer(model, length), codec, model.ids, PROMPTS)
    values = bootstrap(Chosen(), filled, filled)
    return ClozeEvaluation(
        run=source.folder.name,
        prompts=len(filled),
        chance=sum(1 / len(one.options) for one in filled) / len(filled),
        metrics={name: metric.value for name, metric in values.items()},
        intervals={name: [metric.low, metric.high] for name, metric in values.items()},
        scored=filled,
    )


@dataclass(frozen=True)
class CorpusEvaluation:
    """What the documents of a corpus cost a run that reads them.

    `metrics` are `bits_per_byte`, `nats_per_token` and `perplexity` of all documents together, and `intervals` their
    95% intervals over the documents. Of an encoder the nats are those of the pseudo-likelihood under `masking`, which
    is no code length, so that it has no `bits_per_byte`; of others a document that is longer than the window is read
    in windows, `stride` tokens apart.
    """

    run: str
    corpus: str
    split: Split
    documents: int
    tokens: int
    bytes: int
    nats: float
    stride: int | None
    masking: Literal["token", "word"] | None
    metrics: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]]
    scored: Sequence[Document] = field(repr=False, default=())

    def save(self, path: str | Path) -> None:
        """Write a line for each document, JSON or CSV where the name ends in .csv: `index`, `tokens`, `bytes`, `nats`,
        `bits_per_byte` and `perplexity`.
        """
        more = ("bits_per_byte", "perplexity") if self.masking is None else ("perplexity",)
        save_rows(path, [{**asdict(one), **{name: getattr(one, name) for name in more}} for one in self.scored])


def evaluate_corpus(
    run: str | Run,
    corpus: str | None = None,
    *overrides: str,
    split: Split = "validation",
    stride: int | None = None,
    masking: Literal["token", "word"] | None = None,
    limit: int | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> CorpusEvaluation:
    """Bits per byte and perplexity of a corpus that was prepared with the run's tokenizer, as a whole and by document.

    The corpus is the one that the run was trained on unless one is named. Every token of a document is scored once, the
    `eos` that ends it too. `stride` is half a window unless given; `limit` takes the first documents only.

        scaling.evaluate_corpus("3f2a", "wikitext103").metrics["bits_per_byte"]
    """
    from scaling.data.codec import Codec
    from scaling.data.store import root
    from scaling.metric import bootstrap
    from scaling.scoring.corpus import CodeLength, costs, documents
    from scaling.training.finetune import corpus as line_of
    from scaling.training.finetune import pretrained

    if split == "test":
        raise ScalingError("a corpus has no test split", key="--split", value=split, fix="take validation or train")
    _check_limit(limit)
    source = pretrained(_name(run), runs)
    encoder = source.family == "encoder"
    for flag, value, wrong in (("--stride", stride, encoder), ("--masking", masking, not encoder)):
        if value is not None and wrong:
            raise ScalingError(f"it does not apply to a run of the family {source.family}", key=flag, value=value)
    if masking not in (None, "token", "word"):
        raise ScalingError("there is no such choice", key="--masking", value=masking, fix="take token or word")
    data = line_of(source, corpus, words(overrides, settings), runs=runs)
    assert source.tokenizer is not None
    codec = Codec.load(source.tokenizer)
    opened = _opened(data, split, root(runs), source.tokenizer, codec.sha256, corpus)
    length = source.size["length"]
    stride = None if encoder else length // 2 if stride is None else stride
    if stride is not None and not 0 < stride <= length:
        raise ScalingError(f"it is from 1 to the window of {length}", key="--stride", value=stride)
    pairs, model = itertools.islice(opened.documents(), limit), _model(source, runs, device)
    if encoder:
        from scaling.scoring.masked import MaskedScorer

        scorer = MaskedScorer(model.module, model.ids, length, masking or "token", codec.words)  # type: ignore[arg-type]
        ends = set(codec.specials.values())
        texts = ((None, text[:-1] if len(text) and int(text[-1]) in ends else text) for _, text in pairs)
        scored = documents(texts, codec, lambda group: scorer.nats([text.tolist() for _, text in group]))
    else:
        reader = _scorer(model, length)
        scored = documents(pairs, codec, lambda group: costs(reader, group, stride or length))
    read = [document for document in scored if document.tokens]
    if not read:
        raise ScalingError(f"the {split} split has no document", key="--corpus", value=corpus, fix="take another split")
    values = bootstrap(CodeLength(), read, read)
    if encoder:
        values.pop("bits_per_byte", None)
    return CorpusEvaluation(
        run=source.folder.name,
        corpus=corpus or "its own",
        split=split,
        documents=len(read),
        tokens=sum(document.tokens for document in read),
        bytes=sum(document.bytes for document in read),
        nats=sum(document.nats for document in read),
        stride=stride,
        masking=(masking or "token") if encoder else None,
        metrics={name: metric.value for name, metric in values.items()},
        intervals={name: [metric.low, metric.high] for name, metric in values.items()},
        scored=read,
    )


@dataclass(frozen=True)
class HarnessEvaluation:
    """What lm-evaluation-harness gives a run. `document` is its own, with the `results` of each task and group by the
    names of its metrics, and `table` its own table of them.

    `shots` and `generation` replaced what the tasks state, and `limit` took the first examples of each.
    """

    run: str
    lm_eval_version: str
    shots: int | None
    limit: int | None
    generation: Mapping[str, Any]
    document: Mapping[str, Any]
    table: str
    scored: Mapping[str, Sequence[Mapping[str, Any]]] = field(repr=False, default_factory=dict)

    @property
    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """The values of each task and group, as `acc,none`: a metric and the filter that answers went through."""
        return self.document["results"]

    def save(self, path: str | Path) -> None:
        """Write a line for each example, JSON or CSV where the name ends in .csv: `task`, `index`, `filter`, `prompt`,
        `target`, the `responses` and the example's `metrics`.
        """
        rows = [
            {
                "task": task,
                "index": one["doc_id"],
                "filter": one["filter"],
                "prompt": one["arguments"][0][0],
                "target": one["target"],
                "responses": one["filtered_resps"],
                "metrics": {name: one[name] for name in one["metrics"]},
            }
            for task, examples in self.scored.items()
            for one in examples
        ]
        save_rows(path, rows)


def evaluate_harness(
    run: str | Run,
    tasks: str | Sequence[str],
    *overrides: str,
    shots: int | None = None,
    limit: int | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> HarnessEvaluation:
    """Score a decoder or an encoder-decoder on tasks of lm-evaluation-harness (`pip install 'scaling[harness]'`).

    A task is a name of its registry, a YAML file, or a folder of these. `shots` examples come before each question
    instead of as many as the task states; overrides replace its `generation_kwargs`.

        scaling.evaluate_harness("3f2a", ["arc_easy", "own.yaml"], limit=100).results["arc_easy"]["acc,none"]
    """
    from scaling.config import assignments
    from scaling.scoring.registry import check_tasks
    from scaling.training.finetune import pretrained

    names = [tasks] if isinstance(tasks, str) else list(tasks)
    _check_limit(limit)
    if shots is not None and shots < 0:
        raise ScalingError("expected no negative number", key="--shots", value=shots)
    generation = assignments(words(overrides, settings))
    source = pretrained(_name(run), runs)
    if source.family == "encoder":
        what = "an encoder sees what comes after a token, so it neither scores nor writes a continuation"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    if source.tokenizer is None:
        what, fix = "the run has no tokenizer, so it reads no text", "take a run that was trained on text"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix=fix)
    check_tasks(names)
    from importlib.metadata import version

    from scaling.data.codec import Codec
    from scaling.scoring.harness import HarnessModel, plain, run_tasks, table

    length = source.size["length"]
    model = HarnessModel(
        Codec.load(source.tokenizer), source.family, length, lambda: _scorer(_model(source, runs, device), length)
    )
    results = run_tasks(model, names, shots, limit, generation)
    samples = plain(results.pop("samples"))
    return HarnessEvaluation(
        run=source.folder.name,
        lm_eval_version=version("lm_eval"),
        shots=shots,
        limit=limit,
        generation=generation,
        document=plain(results),
        table=table(results),
        scored=samples,
    )


def _opened(data: Mapping[str, Any], split: str, folder: Path, file: Path, sha256: str, name: str | None) -> Any:
    """The split of a corpus as the run's tokenizer wrote it: the data line as it is, or else with that tokenizer."""
    from scaling.build import build

    own = {"kind": "File", "path": str(file)}
    fix = f"run `scaling data prepare {name or ''} data.tokenizer='{{kind: File, path: {file}}}'` with the same runs="
    first: ScalingError | None = None
    for line in (data, {**data, "tokenizer": own}):
        if "tokenizer" not in data:
            break
        try:
            source = build("data", line).open(split, folder)
        except ScalingError as error:
            first = first or error
            continue
        if getattr(source, "tokenizer", None) == sha256:
            return source
    else:
        if first is None or first.key == "data":
            what = "it has not been prepared with the run's tokenizer"
            raise ScalingError(what, key="--corpus", value=name, fix=fix)
        raise first
    what = "it is no corpus of texts"
    raise ScalingError(what, key="--corpus", value=name, fix="name data whose documents are tokenized, as `python`")


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ScalingError("expected a positive number", key="--limit", value=limit)


def _name(run: str | Run) -> str:
    return str(run.path) if isinstance(run, Run) else run


def _model(source: Pretrained, runs: str | Path, device: str | None) -> Model:
    from scaling.api.model import Model
    from scaling.interop.run import read

    return Model(read(source.folder, runs), device)


def _scorer(model: Model, length: int) -> Scorer:
    from scaling.scoring.likelihood import Scorer

    return Scorer(model.module, model.saved.described.ids, length)  # type: ignore[arg-type]


def save_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, or CSV where the name ends in .csv. The file is whole or not there."""
    if Path(path).suffix == ".csv":
        table = [
            [value if isinstance(value, str | int | float) else json.dumps(value) for value in row.values()]
            for row in rows
        ]
        write(path, separated([list(rows[0]) if rows else [], *table], ","))
        return
    write(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
