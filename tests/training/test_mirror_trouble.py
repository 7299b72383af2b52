"""W&B refuses, hangs, answers 500, dies midway, knows the key not: the result is the same and the delay bounded."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scaling.training import mirror
from tests.training.conftest import left, words
from tests.wandb_server.server import Request, Server, serving

EVER = 10**6


@dataclass(frozen=True)
class Trouble:
    """What goes wrong from the request after `after` on; `start` and `end` are the seconds that W&B is given."""

    kind: str
    after: int = 0
    start: float = mirror.START
    end: float = mirror.SILENT["finish_timeout"]

    def __str__(self) -> str:
        return f"{self.kind} after {self.after}, {self.start:g} s and {self.end:g} s"

    def befall(self, server: Server) -> None:
        match self.kind:
            case "refuses":
                server.stop()
            case "wrong key":
                server.key = "0" * len(server.key)
            case "hangs":
                server.fail("hang", times=EVER, seconds=120, matches=self._late(server))
            case "fails":
                server.fail("status", times=EVER, matches=self._late(server))
            case "dies":
                server.fail("cut", times=EVER, matches=self._late(server))  # on connections that are open
                threading.Thread(target=self._stop, args=[server], daemon=True).start()

    def _late(self, server: Server) -> Callable[[Request], bool]:
        return lambda _: len(server.requests) > self.after

    def _stop(self, server: Server) -> None:
        while len(server.requests) <= self.after:
            time.sleep(0.01)
        server.stop()


# Two seconds do only where no server answers: on a busy machine W&B may need longer to send its first request.
FAST = [Trouble("refuses", 0, 2.0, 2.0), Trouble("dies", 2, end=5.0), Trouble("wrong key", end=2.0)]
SLOW = [
    Trouble("refuses"),
    Trouble("wrong key"),
    *(Trouble(kind, after) for kind in ("hangs", "fails", "dies") for after in (0, 1, 2, 3, 4, 5)),
    Trouble("hangs", 0, 1.0, 1.0),
    Trouble("fails", 0, 1.0, 1.0),
]


def timed(name: str, told: Path) -> None:
    """Let a method of the mirror write down how many seconds training waited for it."""
    before = getattr(mirror.Mirror, name)

    def watched(*given: Any) -> None:
        begun = time.monotonic()
        before(*given)
        told.write_text(str(time.monotonic() - begun))

    setattr(mirror.Mirror, name, watched)


@pytest.mark.parametrize("trouble", [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)], ids=str)
def test_a_server_in_trouble_changes_nothing(trouble, tmp_path, fork, unbroken):
    start, end = tmp_path / "start", tmp_path / "end"
    with serving() as server:
        environment = server.environment()
        trouble.befall(server)

        def online() -> None:
            os.environ.pop("WANDB_MODE", None)
            os.environ.update(environment)
            mirror.SILENT.update(init_timeout=trouble.start, finish_timeout=trouble.end)
            timed("__init__", start)
            timed("close", end)

        assert fork(words(tmp_path / "runs", log__wandb="online"), online).wait(600) == 0
        assert trouble.kind == "refuses" or len(server.requests) > trouble.after
    assert left(tmp_path / "runs") == unbroken
    assert float(start.read_text()) < 10
    assert float(end.read_text()) < 30
