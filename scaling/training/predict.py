"""Predictions of a finetuned run: of a split of its task, or of examples without answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.store import root
from scaling.errors import ScalingError
from scaling.interop.run import Run, averaged, read
from scaling.schema import build, kinds
from scaling.training.experiment import EVALUATION_TOKENS
from scaling.training.finetune import Finetuned
from scaling.training.scores import Outputs, predicted


@dataclass(frozen=True)
class Predictor:
    """A finetuned model, its own task, and how it reads examples; `others` write their answers together with it."""

    run: Run
    task: Any
    objective: Any
    device: torch.device
    others: tuple[Run, ...] = ()

    @classmethod
    def of(
        cls,
        finetuned: Finetuned,
        runs: str | Path,
        device: torch.device,
        average: int | None = None,
        others: Sequence[Finetuned] = (),
    ) -> Predictor:
        """`average` takes the mean weights of as many checkpoints of each run."""
        run, *more = (
            read(each.folder, runs) if average is None else averaged(each.folder, runs, average)
            for each in (finetuned, *others)
        )
        task = build("data", finetuned.own)
        sections = run.described.sections
        family = kinds("model")[sections["model"]["kind"]].family  # type: ignore[attr-defined]
        train = task.open("train", root(runs))
        vocabulary = Vocabulary.of(train)
        objective = build("objective", finetuned.objective, vocabulary, sections["size"]["length"], family)
        if objective.vocabulary.size > (size := sections["size"]["vocabulary"]):
            raise ScalingError(
                f"the task takes {objective.vocabulary.size:,} token ids, and the model knows {size:,}",
                key="data.tokenizer",
                fix="take the tokenizer that the run was trained with",
            )
        objective.check(train.task)
        if objective.writes:
            objective.features(train)  # it writes as much as it learned to, whatever the examples are that it is asked
        for other, one in zip(others, more, strict=True):
            _check_together(run, one, finetuned, other, runs)
        return cls(run, task, objective, device, tuple(more))

    @torch.no_grad()
    def predictions(self, source: Any) -> tuple[dict[int, Any], bool]:
        """The prediction of each example of a source by its number, and whether the model wrote them."""
        rows = max(1, EVALUATION_TOKENS // self.objective.reads)
        batches, count = evaluation(source, self.objective, rows)
        models = [run.model(self.device) for run in (self.run, *self.others)]
        outputs, model = Outputs(batches, count, models=models), models[0]
        if self.others and not outputs.written:
            fix = "leave it out, or take models that write their answers"
            raise ScalingError("the head of a task predicts by itself", key="ensemble", fix=fix)
        for step in range(count):
            batch = batches.batch(step).to(self.device)
            outputs.add(model, batch, torch.empty(0) if outputs.written else model.logits(batch))
        return predicted(outputs, source), outputs.written


def _check_together(run: Run, other: Run, own: Finetuned, its: Finetuned, runs: str | Path) -> None:
    """Refuse a model that reads or writes other tokens, or another family."""
    tokens = [build("data", each.own).open("train", root(runs)).tokenizer for each in (own, its)]
    sections = [one.described.sections for one in (run, other)]
    kinds_of = [(each["model"]["kind"], each["size"]["vocabulary"]) for each in sections]
    if tokens[0] != tokens[1] or kinds_of[0] != kinds_of[1]:
        what, fix = "it is of another family or vocabulary than the run", "name runs of the same task and tokenizer"
        raise ScalingError(what, key="ensemble", value=its.folder.name, fix=fix)


def shown(prediction: Any, labels: Mapping[int, str] | tuple[str, ...], answer: str) -> Any:
    """A prediction as a file holds it: classes by their names."""
    if prediction is None:
        return None
    if answer == "class":
        return labels[prediction]
    return [labels[label] for label in prediction] if answer == "classes" else prediction
