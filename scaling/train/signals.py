"""Signals: a handler only sets a flag; at a step boundary all ranks agree on it, save, and leave together."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaling.lightning import Trainer

PRUNE = signal.SIGUSR2  # a sweep stops the run early; what it reached is its result
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, PRUNE)


class Stopped(Exception):
    """The run was asked to stop, and its state is saved."""

    def __init__(self, signal: int, step: int | None):
        self.signal, self.step = signal, step
        super().__init__(f"stopped by signal {signal}" + ("" if step is None else f" at step {step}"))


class Signals:
    """Listens while it is entered; the first signal counts, and a second SIGINT is what it is everywhere."""

    def __init__(self) -> None:
        self.heard = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._before = self.listen()
        return self

    def listen(self) -> dict[int, Any]:
        """Take the signals, and return who had them. Lightning takes SIGTERM when it starts, and would raise on it."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {one: signal.signal(one, self._hear) for one in HEARD}

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            # The wish to stop early may come when the run is over, and then it means nothing.
            signal.signal(one, signal.SIG_IGN if one == PRUNE else handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.heard and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.heard = self.heard or number

    def agreed(self, trainer: Trainer) -> int:
        """The signal that some rank heard, told to all of them at the same step; 0 for none."""
        if trainer.world_size == 1:
            return self.heard
        import torch  # here, since sweeps and agents want the signals' names within a second
        import torch.distributed

        flag = torch.tensor(self.heard, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return int(flag)
