"""Predictions of a finetuned run: of a split of its task, or of examples without answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaling.build import build, kinds
from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.store import root
from scaling.errors import ScalingError
from scaling.interop.run import Run, read
from scaling.training.experiment import EVALUATION_TOKENS
from scaling.training.finetune import Finetuned
from scaling.training.scores import Outputs, predicted


@dataclass(frozen=True)
class Predictor:
    """A finetuned model, its own task, and how it reads examples."""

    run: Run
    task: Any
    objective: Any
    device: torch.device

    @classmethod
    def of(cls, finetuned: Finetuned, runs: str | Path, device: torch.device) -> Predictor:
        run = read(finetuned.folder, runs)
        task = build("data", finetuned.own)
        sections = run.described.sections
        family = kinds("model")[sections["model"]["kind"]].family  # type: ignore[attr-defined]
        vocabulary = Vocabulary.of(task.open("train", root(runs)))
        objective = build("objective", finetuned.objective, vocabulary, sections["size"]["length"], family)
        if objective.vocabulary.size > (size := sections["size"]["vocabulary"]):
            raise ScalingError(
                f"the task takes {objective.vocabulary.size:,} token ids, and the model knows {size:,}",
                key="data.tokenizer",
                fix="take the tokenizer that the run was trained with",
            )
        return cls(run, task, objective, device)

    @torch.no_grad()
    def predictions(self, source: Any) -> tuple[dict[int, Any], bool]:
        """The prediction of each example of a source by its number, and whether the model wrote them."""
        rows = max(1, EVALUATION_TOKENS // self.objective.reads)
        batches, count = evaluation(source, self.objective, rows)
        outputs, model = Outputs(batches, count), self.run.model(self.device)
        for step in range(count):
            batch = batches.batch(step).to(self.device)
            outputs.add(model, batch, torch.empty(0) if outputs.written else model.logits(batch))
        return predicted(outputs, source), outputs.written


def shown(prediction: Any, labels: Mapping[int, str] | tuple[str, ...], answer: str) -> Any:
    """A prediction as a file holds it: classes by their names."""
    if prediction is None:
        return None
    if answer == "class":
        return labels[prediction]
    return [labels[label] for label in prediction] if answer == "classes" else prediction
