"""Evaluation: the fixed held-out batches at spaced steps and at the end, whole unless the run is short."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.data.batches import Batches
from scaling.model.family import Family, losses_of, predict, targets_of
from scaling.training.predict import Outputs, predicted, scores

FORWARD = 1 / 3  # of a training step's FLOPs, which an evaluation spends on each of its tokens
COST = 0.1  # of a run's training FLOPs, which its evaluations may take where `evaluate.windows` is auto
FREE = 1 << 14  # tokens of all evaluations that no run saves on: it takes longer to start
FEWEST = 1 << 10  # tokens of one evaluation: fewer would measure nothing


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

    def __init__(self, batches: Batches, count: int, rank: int = 0, ranks: int = 1):
        objective: Any = batches.objective
        self.source, self.domains, self.ranks = batches.source, batches.source.domains, ranks
        self.is_code = getattr(objective, "is_code", False)
        self.text = objective.vocabulary.is_text if getattr(objective, "writes_sentinels", False) else None
        self.outputs = Outputs(batches, count, rank, ranks) if self.source.gives == "examples" else None
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
        every = [self.sums] * self.ranks
        if self.ranks > 1:
            distributed.all_gather_object(every, self.sums)
        names = dict.fromkeys(name for sums in every for name in sums)
        summed = {name: reduce(_longer, (sums[name] for sums in every if name in sums)) for name in names}
        tables = {name: table.transpose(0, -1).tolist() for name, table in summed.items()}
        plain, count = tables["loss"]
        if not count:
            raise ScalingError(
                "the held-out batches have no target", key="objective", fix="let it hide more, or evaluate more windows"
            )
        measured: dict[str, Any] = {"loss": plain / count, "loss_plain": plain / count, "targets": int(count)}
        if "text" in tables and tables["text"][1]:
            measured["loss_text"] = tables["text"][0] / tables["text"][1]
        if "excess" in tables and self.source.entropy is not None:
            measured["excess"] = tables["excess"][0] / count
            measured["loss"] = self.source.entropy + measured["excess"]
            measured["entropy"] = self.source.entropy
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
            measured |= scores(self.source, predicted(self.outputs, self.source), written=self.outputs.written)
        return measured


def _longer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tables by position, of which one may be shorter."""
    width, pad = max(a.shape[-1], b.shape[-1]), torch.nn.functional.pad
    return pad(a, (0, width - a.shape[-1])) + pad(b, (0, width - b.shape[-1]))
