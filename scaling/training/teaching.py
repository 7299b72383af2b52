"""Teaching: the examples of a student's batch as its teacher reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.batch import Batch
from scaling.config import Config
from scaling.data.batches import Features
from scaling.data.source import Vocabulary
from scaling.data.task.source import Examples
from scaling.interop.run import Run
from scaling.schema import build, kinds


@dataclass(frozen=True)
class Teaching:
    """How a teacher reads the examples of a task, where it reads them otherwise than the student."""

    source: Examples
    objective: Any
    features: Features

    @classmethod
    def of(cls, config: Config, objective: Any, teacher: Run, source: Examples) -> Teaching | None:
        """None where the teacher reads a batch as the student does."""
        sections = teacher.described.sections
        family = kinds("model")[sections["model"]["kind"]].family  # type: ignore[attr-defined]
        length = sections["size"]["length"]
        if family == objective.family and length == config["size.length"]:
            own = objective.student
        else:
            own = build("objective", config["objective"]["objective"], Vocabulary.of(source), length, family)
        if own.vocabulary.size > (vocabulary := sections["size"]["vocabulary"]):
            what = f"the task takes {own.vocabulary.size:,} token ids, and the teacher knows {vocabulary:,}"
            raise config.error("objective.teacher", what, "take a teacher with the tokenizer of the data")
        features = own.features(source)
        if own is objective.student:
            return None
        if len(features.examples) != len(source.items):
            what = "long documents are cut into windows otherwise for a teacher of another family or length"
            raise config.error("objective.teacher", what, "take a teacher of the student's family and size.length")
        return cls(source, own, features)

    def batch(self, batch: Batch) -> Batch:
        """The examples of a student's batch."""
        assert batch.examples is not None
        rows = batch.examples.clamp(min=0).cpu().numpy()
        width = int(self.features.lengths[rows].max())
        read = self.source.read(rows, width)
        keys = np.zeros(len(rows), np.uint64)
        return self.objective(replace(read, starts=self.features.starts[rows], width=width), keys).to(
            batch.tokens.device
        )
