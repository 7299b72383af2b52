"""Predictions: what a model predicts of a task's examples, gathered from the ranks, and what the metric makes of it.

A model with the head of a task predicts in its forward pass. One that predicts tokens writes its answers, greedily
unless the task sets another strategy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.batches import Batches, evaluation
from scaling.data.source import Vocabulary
from scaling.data.store import root
from scaling.evaluation.generate import aligned, generate, prompt
from scaling.evaluation.strategy import Greedy
from scaling.interop.run import averaged, read
from scaling.metrics import bootstrap, paired_bootstrap
from scaling.model.family import Family
from scaling.training.finetune import Pretrained
from scaling.training.values import family_of

EVALUATION_TOKENS = 1 << 16  # in one batch of an evaluation: enough to be fast, few enough to fit
NONE = -1  # where a written answer has ended


class Outputs:
    """What a model puts out for each batch of an evaluation; each rank sees its own batches, in their order."""

    def __init__(self, batches: Batches, count: int, rank: int = 0, ranks: int = 1):
        self.batches, self.count, self.rank, self.ranks = batches, count, rank, ranks
        self.written: bool = batches.objective.writes(batches.source.task)  # type: ignore[attr-defined]
        self._own: list[Tensor] = []

    def add(self, model: Family, batch: Batch, predictions: Tensor) -> None:
        """Note what the model's head predicts of this rank's next batch, or let the model write its answers."""
        if self.rank + self.ranks * len(self._own) >= self.count:
            return  # a spare batch
        own = self._answers(model, batch) if self.written else predictions
        self._own.append(own.float().cpu() if own.is_floating_point() else own.cpu())

    def _answers(self, model: Family, batch: Batch) -> Tensor:
        """[b n] tokens that follow each row's prompt, NONE after the last; n is the length of the longest target."""
        objective: Any = self.batches.objective
        specials = objective.vocabulary.specials
        prompts = _prompts(model, batch, specials)
        task: Any = self.batches.source.task  # type: ignore[attr-defined]
        steps = objective.width(task)
        rows = generate(model, prompts, task.decode or Greedy(), steps=steps, stop={specials["eos"]})
        written = batch.tokens.new_full((batch.rows, steps), NONE)
        for row, (best, *_) in zip(written, rows):
            row[: len(best.tokens)] = row.new_tensor(list(best.tokens))
        return written

    def all(self) -> Iterator[tuple[Tensor, Batch]]:
        """The outputs of all batches in their order, on every rank, each with its batch."""
        for step in range(self.count):
            owner = step % self.ranks
            output = [self._own[step // self.ranks] if owner == self.rank else None]
            if self.ranks > 1:
                distributed.broadcast_object_list(output, owner)
            yield cast(Tensor, output[0]), self.batches.batch(step)


def _prompts(model: Family, batch: Batch, specials: Mapping[str, int]) -> Batch:
    """The rows without their answers."""
    if model.family == "encoder_decoder":
        return prompt(
            batch.tokens[:, :1],
            source=batch.source,
            source_documents=batch.source_documents,
            source_positions=batch.source_positions,
        )
    first = (batch.targets != IGNORE).int().argmax(1).tolist()
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.documents is None else batch.documents > 0
    rows = [row[: end + 1][keep[: end + 1]].tolist() for row, keep, end in zip(batch.tokens, real, first)]
    tokens, documents = aligned(rows, specials.get("pad", 0))
    lengths = torch.tensor([len(row) for row in rows])
    return prompt(tokens, documents, prefix=lengths).to(batch.tokens.device)


def predicted(outputs: Outputs, source: Any) -> dict[int, Any]:
    """The prediction of each example by its number; None of a written answer that is none."""
    objective: Any = outputs.batches.objective
    if not outputs.written:
        return objective.predictions(outputs.all(), source)
    special = set(objective.vocabulary.specials.values())
    answers: dict[int, Any] = {}
    for tokens, batch in outputs.all():
        assert batch.examples is not None
        for row, example in zip(tokens.tolist(), batch.examples.tolist()):
            if example >= 0:
                text = np.array([token for token in row if token != NONE and token not in special], np.int64)
                answers[example] = objective.parsed(source.decode(text), source, example)
    return answers


def probabilities(outputs: Outputs, source: Any) -> dict[int, list[float]]:
    """The probability of each label, in their order, of each example whose class or classes a head predicts."""
    if outputs.written or source.task.answer not in ("class", "classes"):
        return {}
    chances: dict[int, list[float]] = {}
    for logits, batch in outputs.all():
        assert batch.examples is not None
        each = logits.softmax(-1) if source.task.answer == "class" else logits.sigmoid()
        chances |= dict(zip(batch.examples.tolist(), each.tolist()))
    chances.pop(-1, None)  # a spare row
    return chances


def scores(source: Any, predictions: Mapping[int, Any], *, written: bool) -> dict[str, Any]:
    """`score`, the main value of the task's metric, all of its values as `metrics`, the 95% interval of each over the
    examples as `intervals`, and, where answers are written, the fraction that is `invalid`.

    Examples whose answer is not known do not count.
    """
    metric, labelled, references, groups = _labelled(source, predictions)
    outputs = [predictions[index] for index in labelled]
    each = bootstrap(metric, outputs, references, groups)
    report: dict[str, Any] = {"score": each[metric.main].value}
    report["metrics"] = {name: value.value for name, value in each.items()}
    report["intervals"] = {name: [value.low, value.high] for name, value in each.items()}
    if written:
        report["invalid"] = sum(value is None for value in outputs) / len(outputs)
    return report


def compared(source: Any, predictions: Mapping[int, Any], others: Mapping[int, Any]) -> dict[str, Any]:
    """The score of another run's predictions of the examples whose answer is known, `score_against`, and the paired
    `difference` to it with its `interval` and `p`.
    """
    metric, labelled, references, groups = _labelled(source, predictions)
    own, other = ([each.get(index) for index in labelled] for each in (predictions, others))
    result = paired_bootstrap(metric, own, other, references, groups)
    return {
        "score_against": metric.score(other, references, groups)[metric.main],
        "difference": result.difference,
        "interval": [result.low, result.high],
        "p": result.p,
    }


def _labelled(source: Any, predictions: Mapping[int, Any]) -> tuple[Any, list[int], list[Any], list[str] | None]:
    """The metric of a task, the examples whose answer is known, their answers, and their groups if they have any."""
    examples = source.examples
    labelled = [index for index in sorted(predictions) if index >= 0 and examples[index].answer is not None]
    groups = [examples[index].group for index in labelled]
    named = None if any(group is None for group in groups) else list(map(str, groups))
    return source.task.metric, labelled, [examples[index].answer for index in labelled], named


class Predictor:
    """A finetuned model with its own task, to predict of examples; `average` takes the mean weights of as many
    checkpoints of its run.
    """

    def __init__(self, finetuned: Pretrained, runs: str | Path, device: torch.device, average: int | None = None):
        place = finetuned.folder, runs
        self.run, self.device = read(*place) if average is None else averaged(*place, average), device
        self.task, sections = build("data", finetuned.data), self.run.sections
        train, size = self.task.open("train", root(runs)), sections["size"]
        shared = Vocabulary.of(train), size["length"], family_of(sections["model"])
        self.objective: Any = build("objective", finetuned.sections["objective"], *shared)
        if self.objective.vocabulary.size > size["vocabulary"]:
            ids, known = self.objective.vocabulary.size, size["vocabulary"]
            what = f"the task takes {ids:,} token ids, and the model knows {known:,}"
            raise ScalingError(what, key="data.tokenizer", fix="take the tokenizer that the run was trained with")
        self.objective.writes(train.task)  # refuses a task that the family cannot be trained on

    @torch.no_grad()
    def outputs(self, source: Any) -> Outputs:
        """What the model puts out for the examples of a source."""
        rows = max(1, EVALUATION_TOKENS // self.objective.reads)
        batches, count = evaluation(source, self.objective, rows)
        outputs, model = Outputs(batches, count), self.run.model(self.device)
        for step in range(count):
            batch = batches.batch(step).to(self.device)
            outputs.add(model, batch, torch.empty(0) if outputs.written else model.logits(batch))
        return outputs

    def predictions(self, source: Any) -> tuple[dict[int, Any], bool]:
        """The prediction of each example of a source by its number, and whether the model wrote them."""
        outputs = self.outputs(source)
        return predicted(outputs, source), outputs.written


def shown(prediction: Any, labels: Mapping[int, str] | tuple[str, ...], answer: str) -> Any:
    """A prediction as a file holds it: classes by their names."""
    if prediction is None:
        return None
    if answer == "class":
        return labels[prediction]
    return [labels[label] for label in prediction] if answer == "classes" else prediction
