"""What a run can do without finetuning."""

from __future__ import annotations

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
    from scaling.data.codec import Codec
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
    from scaling.data.store import root
    from scaling.metric import bootstrap
    from scaling.scoring.options import NORMALISATIONS, Choosing, Prompting, drawn, questions, scored
    from scaling.training.finetune import pretrained, unfinetuned

    for flag, value, choices in (("--split", split, SPLITS), ("--normalisation", normalisation, NORMALISATIONS)):
        if value not in choices:
            raise ScalingError("there is no such choice", key=flag, value=value, fix=nearest(value, choices))
    prompting = Prompting(formulation, frame, shots, seed)
    source = pretrained(_name(run), runs)
    if source.family == "encoder":
        what = "an encoder sees what comes after a token, so it has no likelihood of an option"
        raise ScalingError(what, key="RUN", value=source.folder.name, fix="finetune it on the task")
    data = unfinetuned(source, task, words(overrides, settings), runs=runs)
    opened = build("data", data)
    posed = questions(opened.open(split, root(runs)))  # before torch is imported
    head = ""
    if shots:
        train = posed if split == "train" else questions(opened.open("train", root(runs)))
        chosen = drawn(train, shots, seed)
        head = prompting.head([train[index] for index in chosen])
        posed = {index: question for index, question in posed.items() if split != "train" or index not in chosen}
    posed = dict(list(posed.items())[:limit])
    if not posed:
        fix = "take another split"
        raise ScalingError(f"the {split} split has no example to score", key="--split", value=split, fix=fix)
    scorer, codec = _scorer(source, runs, device)
    answers = scored(scorer, codec, posed, prompting, head)
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


def _name(run: str | Run) -> str:
    return str(run.path) if isinstance(run, Run) else run


def _scorer(source: Pretrained, runs: str | Path, device: str | None) -> tuple[Scorer, Codec]:
    from scaling.api.model import _device
    from scaling.data.codec import Codec
    from scaling.interop.run import read
    from scaling.scoring.likelihood import Scorer

    saved = read(source.folder, runs)
    assert source.tokenizer is not None
    scorer = Scorer(saved.model(_device(device)), saved.described.ids, saved.described.sections["size"]["length"])
    return scorer, Codec.load(source.tokenizer)


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
