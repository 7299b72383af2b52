"""Early stopping: a run ends when its evaluations no longer improve, with the weights of the best one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


class EndedEarly(Exception):
    """The last `train.patience` evaluations did not improve."""


@dataclass(frozen=True)
class Patience:
    """What a run knows of its evaluations so far. A checkpoint holds it, so that a resumed run ends at the same step.

    An evaluation is better with a higher `score`, where the run has one, and else with a lower `loss`.
    """

    limit: int  # evaluations without improvement that end the run
    step: int | None = None  # of the last evaluation
    best_step: int | None = None
    best: float | None = None  # of the score, or of the loss with its sign changed: higher is better
    since: int = 0  # evaluations since the best one

    @classmethod
    def of(cls, limit: int | None, note: Mapping[str, Any]) -> Patience | None:
        """That of a checkpoint's note, or of a run that begins; None where a run trains to its end anyhow."""
        return None if limit is None else cls(**{**note.get("patience", {}), "limit": limit})

    @property
    def note(self) -> dict[str, Any]:
        return {"patience": asdict(self)}

    @property
    def exhausted(self) -> bool:
        return self.since >= self.limit

    def after(self, step: int, evaluation: Mapping[str, Any]) -> Patience:
        """The same after one more evaluation. One that is not finite is no improvement."""
        score = evaluation.get("score")
        value = -evaluation["loss"] if score is None else score
        if math.isfinite(value) and (self.best is None or value > self.best):
            return replace(self, step=step, best_step=step, best=value, since=0)
        return replace(self, step=step, since=self.since + 1)
