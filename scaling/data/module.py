"""DataModule: a run's batches as Lightning asks for them. There is no loader state: where to begin is the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.batch import Batch
from scaling.data.batches import Batches
from scaling.data.prefetch import ahead
from scaling.lightning import LightningDataModule


@dataclass(frozen=True)
class Loader:
    """One rank's batches of the steps from `start` to `stop`."""

    batches: Batches
    start: int
    stop: int | None  # None: without end
    rank: int = 0
    ranks: int = 1
    depth: int = 2

    def __iter__(self) -> Iterator[Batch]:
        yield from ahead(self._made, self._steps(), self.depth)

    def _made(self, step: int) -> Batch:
        return self.batches.batch(step, self.rank, self.ranks)

    def _steps(self) -> Iterator[int]:
        step = self.start
        while self.stop is None or step < self.stop:
            yield step
            step += 1


class DataModule(LightningDataModule):
    """Training batches from step `start` to `stop`, and the fixed batches of an evaluation."""

    def __init__(
        self,
        train: Batches,
        validation: Batches,
        evaluations: int,
        start: int = 0,
        stop: int | None = None,
    ):
        super().__init__()
        self.train, self.validation, self.evaluations = train, validation, evaluations
        self.start, self.stop = start, stop

    def train_dataloader(self) -> Loader:
        rank, ranks = self._place()
        return Loader(self.train, self.start, self.stop, rank, ranks)

    def val_dataloader(self) -> Loader:
        rank, ranks = self._place()
        return Loader(self.validation, 0, self.evaluations, rank, ranks)

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
