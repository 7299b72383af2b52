"""Evaluation: the fixed held-out batches at spaced steps and at the end, whole unless the run is short; of a task also
what a model predicts of the examples, and what the metric makes of that.

A model with the head of a task predicts in its forward pass. One that predicts tokens writes its answers, greedily
unless the task sets another strategy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.config.document import Config
from scaling.config.schema import build
from scaling.data.batches import Batches, evaluation
from scaling.data.source import objective_of
from scaling.data.store import root
from scaling.metrics.metric import bootstrap, paired_bootstrap
from scaling.model.family import Family, losses_of, predict, targets_of

if TYPE_CHECKING:
    from scaling.interop.pretrained import Pretrained

FORWARD = 1 / 3  # of a training step's FLOPs, which an evaluation spends on each of its tokens
COST = 0.1  # of a run's training FLOPs, which its evaluations may take where `evaluate.windows` is auto
FREE = 1 << 14  # tokens of all evaluations that no run saves on: it takes longer to start
FEWEST = 1 << 10  # tokens of one evaluation: fewer would measure nothing
EVALUATION_TOKENS = 1 << 16  # in one batch of an evaluation: enough to be fast, few enough to fit
NONE = -1  # where a written answer has ended


def affordable(
    steps: int,
    points: int,
    windows: int,
    trained: int,
    row_tokens: int,
    *,
    whole: bool = False,
    evenly: bool = False,
    alike: bool = False,
) -> tuple[int, int, int]:
    """How often a run is evaluated, on how many windows before its end, and on how many at its end. It trains on
    `trained` windows of `row_tokens` each.

    Where `points` evaluations of all `windows` cost more than a tenth of the run, the last has up to half of the tenth,
    or all windows where it must be `whole`, and the others share the rest; where that is too little for so many, there
    are fewer. Evaluations that are compared with one another are `alike`: all are on the same windows.
    """
    free = FREE // row_tokens
    budget = max(int(COST * trained / FORWARD), free)
    fewest = min(windows, -(-FEWEST // row_tokens))
    if alike:
        points = max(1, min(points, budget // fewest))
        each = min(windows, max(fewest, budget // len(evaluation_steps(steps, points, evenly))))
        return points, each, each
    earlier = len(evaluation_steps(steps, points, evenly)) - 1
    last = windows if whole else min(windows, max(fewest, budget // 2 if earlier else budget))
    rest = max(free if whole else 0, budget - last)
    if earlier * fewest > rest:
        points = rest // fewest + 1
        earlier = len(evaluation_steps(steps, points, evenly)) - 1
    return points, min(last, rest // earlier) if earlier else last, last


def evaluation_steps(steps: int, points: int, evenly: bool = False) -> list[int]:
    """`points` steps spaced evenly on a logarithmic scale, or on a plain one, the last of them the end."""
    if points == 1:
        return [steps]
    if evenly:
        return sorted({max(1, round(steps * index / points)) for index in range(1, points + 1)})
    return sorted({max(1, round(steps ** (index / (points - 1)))) for index in range(points)} | {steps})


class Evaluation:
    """What a model loses on `count` held-out batches, of which each rank adds its own: every target counts once, in
    float64, over all ranks.

    Where the source knows the true loss of each target, `loss` is its entropy plus the model's mean excess over the
    truth on the same targets: the same expectation, with the noise of the sample taken out. `loss_plain` is the plain
    mean. Bits per byte are of objectives whose losses are a code length. `losses` are the plain means of the domains of
    a mixture, by name. `loss_text` is the plain mean over the targets that are text: sentinels are easy, and hide in
    the mean what was learned of the spans. What a model predicts of examples is scored.
    """

    def __init__(self, batches: Batches, count: int, ranks: int = 1):
        objective: Any = batches.objective
        self.source, self.domains, self.ranks = batches.source, batches.source.domains, ranks
        self.is_code = getattr(objective, "is_code", False)
        self.text = objective.vocabulary.is_text if getattr(objective, "writes_sentinels", False) else None
        self.outputs = Outputs(batches, count, ranks) if self.source.gives == "examples" else None
        self.sums: dict[str, Tensor] = {}  # [2] or [2 n]: a sum over targets, and their number
        self.batches = 0

    @torch.no_grad()
    def add(self, model: Family, batch: Batch) -> None:
        targets = targets_of(model.head, batch)
        output = model(batch)
        losses = losses_of(model.head, output, batch).double()
        bears = targets != IGNORE
        self._add("loss", losses.sum(), bears.sum())
        if self.text is not None:
            is_text = bears & torch.from_numpy(self.text).to(targets.device)[targets.clamp(min=0)]
            self._add("text", losses[is_text].sum(), is_text.sum())
        if self.domains and batch.domains is not None:
            rows = torch.stack([losses.sum(1), bears.sum(1).double()]).cpu()
            table = self.sums.get("domains", torch.zeros(2, len(self.domains), dtype=torch.float64))
            self.sums["domains"] = table.index_add(1, batch.domains.cpu(), rows)
        if batch.truth is not None:
            self._add("excess", (losses - batch.truth.double())[bears].sum(), bears.sum())
        predictions = predict(model.head, output, batch)
        if self.outputs is not None:
            self.outputs.add(model, batch, predictions)
        if predictions.shape[:-1] == targets.shape:
            self._add("correct", (predictions.argmax(-1) == targets)[bears].sum(), bears.sum())
        if model.head.target == "targets":
            self._add("positions", losses.sum(0), bears.sum(0))
        self.batches += 1

    def _add(self, name: str, total: Tensor, count: Tensor) -> None:
        table = torch.stack([total.double(), count.double()]).cpu()
        self.sums[name] = _longer(self.sums[name], table) if name in self.sums else table

    def measured(self) -> dict[str, Any]:
        """The means over all that was added, here and on the other ranks."""
        of_ranks = [self.sums] * self.ranks
        if self.ranks > 1:
            distributed.all_gather_object(of_ranks, self.sums)
        names = dict.fromkeys(name for sums in of_ranks for name in sums)
        summed = {name: reduce(_longer, (sums[name] for sums in of_ranks if name in sums)) for name in names}
        tables = {name: table.transpose(0, -1).tolist() for name, table in summed.items()}
        plain, count = tables["loss"]
        fix = "let it hide more, or evaluate more windows"
        refuse(not count, "the held-out batches have no target", fix, key="objective")
        measured: dict[str, Any] = {"loss": plain / count, "loss_plain": plain / count, "targets": int(count)}
        if "text" in tables and tables["text"][1]:
            measured["loss_text"] = tables["text"][0] / tables["text"][1]
        entropy = self.source.entropy
        if "excess" in tables and entropy is not None:
            excess = tables["excess"][0] / count
            measured |= {"excess": excess, "loss": entropy + excess, "entropy": entropy}
        if self.is_code and self.source.bytes_per_token:
            measured["bits_per_byte"] = measured["loss"] / math.log(2) / self.source.bytes_per_token
        if "correct" in tables:
            measured["accuracy"] = tables["correct"][0] / count
        if self.domains:
            means = zip(self.domains, tables.get("domains") or [])
            measured["losses"] = {name: summed / seen for name, (summed, seen) in means if seen}
        if "positions" in tables:
            measured["loss_by_position"] = [value / seen if seen else None for value, seen in tables["positions"]]
        if self.outputs is not None:
            measured |= self.outputs.scores()
        return measured


def _longer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tables by position, of which one may be shorter."""
    width, pad = max(a.shape[-1], b.shape[-1]), torch.nn.functional.pad
    return pad(a, (0, width - a.shape[-1])) + pad(b, (0, width - b.shape[-1]))


# Predictions of a task's examples


class Outputs:
    """The outputs of a model for each batch of an evaluation, and what they predict of the task's examples. Each rank
    sees its own batches, in their order.
    """

    def __init__(self, batches: Batches, count: int, ranks: int = 1):
        self.batches, self.count, self.ranks = batches, count, ranks
        self.source, self.objective = cast(Any, batches.source), cast(Any, batches.objective)
        self.written: bool = self.objective.writes(self.source.task)
        self._own: list[Tensor] = []

    def add(self, model: Family, batch: Batch, predictions: Tensor) -> None:
        """Note what the model's head predicts of this rank's next batch, or let the model write its answers."""
        self._own.append(self._answers(model, batch) if self.written else predictions.detach().float().cpu())

    def _answers(self, model: Family, batch: Batch) -> Tensor:
        """[b n] tokens that follow each row's prompt, NONE after the last."""
        from scaling.evaluation.generate import aligned, generate
        from scaling.evaluation.strategy import Greedy

        specials, task = self.objective.vocabulary.specials, self.source.task
        unanswered, steps = _prompts(model, batch, specials), self.objective.width(task)
        rows = generate(model, unanswered, task.decode or Greedy(), steps=steps, stop={specials["eos"]})
        return aligned([best.tokens for best, *_ in rows], NONE, left=False)[0]

    def all(self) -> Iterator[tuple[Tensor, Batch]]:
        """The outputs of all batches in their order, on every rank, each with its batch; not those of spare ones."""
        of_ranks = [self._own] * self.ranks
        if self.ranks > 1:
            distributed.all_gather_object(of_ranks, self._own)
        for step in range(self.count):
            yield of_ranks[step % self.ranks][step // self.ranks], self.batches.batch(step)

    @cached_property
    def predictions(self) -> dict[int, Any]:
        """The prediction of each example by its number; None of a written answer that is none."""
        return self.objective.predictions(self.all(), self.source)

    def probabilities(self) -> dict[int, list[float]]:
        """The probability of each label, in their order, of each example whose class or classes a head predicts."""
        task, chances = self.source.task, dict[int, list[float]]()
        if not self.written and "classes" in task.head_keys and not task.is_of_words:
            for logits, batch in self.all():
                each = logits.softmax(-1) if task.chances == "softmax" else logits.sigmoid()
                chances |= dict(zip(cast(Tensor, batch.examples).tolist(), each.tolist()))
        return {index: each for index, each in chances.items() if index >= 0}  # without spare rows

    def scores(self) -> dict[str, Any]:
        """`score`, the main value of the task's metric, all of its values as `metrics`, the 95% interval of each over
        the examples as `intervals`, and, where answers are written, the fraction that is `invalid`.
        """
        metric, (outputs,), *right = self._labelled(self)
        measured = bootstrap(metric, outputs, *right)
        invalid = {"invalid": outputs.count(None) / len(outputs)} if self.written else {}
        return {"score": measured["metrics"][metric.main], **measured, **invalid}

    def compared(self, other: Outputs) -> dict[str, Any]:
        """The score of another run on the same examples, `score_against`, and the paired `difference` to it with its
        `interval` and `p`.
        """
        metric, (ours, theirs), *right = self._labelled(self, other)
        score = metric.score(theirs, *right)[metric.main]
        return {"score_against": score, **paired_bootstrap(metric, ours, theirs, *right)}

    def _labelled(self, *each: Outputs) -> Any:
        """The task's metric, and of the examples whose answer is known: what each predicts, the answers, and the groups
        if they have any. Others do not count.
        """
        numbers = [number for number in sorted(self.predictions) if self.source.examples[number].answer is not None]
        examples = [self.source.examples[number] for number in numbers]
        groups = [example.group for example in examples]
        outputs = [list(map(one.predictions.get, numbers)) for one in each]
        answers = [example.answer for example in examples]
        return self.source.task.metric, outputs, answers, None if None in groups else groups


def _prompts(model: Family, batch: Batch, specials: Mapping[str, int]) -> Batch:
    """The rows without their answers."""
    from scaling.evaluation.generate import prompts

    if model.family == "encoder_decoder":
        return replace(batch, tokens=batch.tokens[:, :1], targets=batch.targets[:, :1], documents=None)
    first = (batch.targets != IGNORE).int().argmax(1).tolist()
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.documents is None else batch.documents > 0
    rows = [row[: end + 1][keep[: end + 1]].tolist() for row, keep, end in zip(batch.tokens, real, first)]
    return prompts(rows, model.family, specials).to(batch.tokens.device)


class Predictor:
    """A finetuned model with its own task, to predict of examples; `average` takes the mean weights of as many
    checkpoints of its run.
    """

    def __init__(self, finetuned: Pretrained, device: torch.device, average: int | None = None):
        from scaling.interop.run import averaged, read

        folder, self.device = finetuned.folder, device
        self.run = read(folder) if average is None else averaged(folder, average)
        self.task = build("data", finetuned.data)
        train = self.task.open("train", root(finetuned.runs))
        self.objective = objective_of(Config(dict(finetuned.sections), {}), train)
        ids, size = self.objective.vocabulary.size, self.run.sections["size"]["vocabulary"]
        what = f"the task takes {ids:,} token ids, and the model knows {size:,}"
        refuse(ids > size, what, "take the tokenizer that the run was trained with", key="data.tokenizer")
        self.objective.writes(train.task)  # refuses a task that the family cannot be trained on

    @torch.no_grad()
    def outputs(self, source: Any) -> Outputs:
        """The outputs of the model for the examples of a source."""
        rows = max(1, EVALUATION_TOKENS // self.objective.reads)
        batches, count = evaluation(source, self.objective, rows)
        outputs, model = Outputs(batches, count), self.run.model(self.device)
        for step in range(count):
            batch = batches.batch(step).to(self.device)
            outputs.add(model, batch, torch.empty(0) if outputs.written else model.logits(batch))
        return outputs
