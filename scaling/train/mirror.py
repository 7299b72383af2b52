"""Mirror: a run's log entries shown in W&B. The ledger is the record; whatever happens here, the training is the same.

A thread of its own holds W&B, so that training waits for it at no time but the end, and there for a bounded one. Only
what the ledger knows is sent: the spec, the entries, the result. No arguments, environment, code, or facts of the host.
"""

from __future__ import annotations

import logging
import netrc
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaling.ledger import Attempt
from scaling.train.experiment import Experiment

START, EXIT = 10.0, 25.0  # seconds that W&B may take
MOST = 10_000  # entries that wait for W&B; further ones are dropped, and counted

logger = logging.getLogger(__name__)

Entry = Mapping[str, Any]


def mode(experiment: Experiment) -> str:
    """`log.wandb`, or what WANDB_MODE or a missing key make of `auto`."""
    told = experiment.config["log.wandb"]
    if told != "auto":
        return told
    named = os.environ.get("WANDB_MODE", "")
    if named in ("online", "offline", "disabled"):
        return named
    return "online" if os.environ.get("WANDB_API_KEY") or _has_login() else "offline"


@contextmanager
def mirrored(experiment: Experiment, attempt: Attempt | None) -> Iterator[Callable[[Entry], None]]:
    """What to tell each entry of the log to; it hears nothing where W&B is disabled, or the rank has no attempt."""
    found = mode(experiment)
    if attempt is None or found == "disabled":
        yield lambda entry: None
        return
    mirror = Mirror(experiment, attempt, found)
    try:
        yield mirror
    finally:
        mirror.close()


class Mirror:
    """The entries on their way to W&B."""

    def __init__(self, experiment: Experiment, attempt: Attempt, found: str):
        self._waiting: queue.Queue[Entry | None] = queue.Queue(MOST)
        self._dropped = 0
        self._flops = experiment.cost.flops_train_per_token
        self._given = _given(experiment, attempt, found)
        self._thread = threading.Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def __call__(self, entry: Entry) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Let W&B finish, for at most EXIT seconds."""
        self._say_the_end()
        self._thread.join(EXIT)
        if self._thread.is_alive():
            logger.warning("W&B did not finish in time; the ledger has everything")
        if self._dropped:
            logger.warning("W&B was too slow for %d entries; the ledger has them", self._dropped)

    def _say_the_end(self) -> None:
        while True:
            try:
                return self._waiting.put_nowait(None)
            except queue.Full:
                self._waiting.get_nowait()
                self._dropped += 1

    def _work(self) -> None:
        try:
            self._mirror()
        except Exception as error:
            logger.warning("W&B: %s; the run goes on without it", " ".join(str(error).split())[:200])

    def _mirror(self) -> None:
        import wandb
        from lightning.pytorch.loggers import WandbLogger

        Path(self._given["dir"]).mkdir(exist_ok=True)
        run = wandb.init(**self._given, settings=wandb.Settings(**_SILENT))
        lightning = WandbLogger(experiment=run)
        for axis in ("tokens", "flops"):
            run.define_metric(axis, hidden=True)
        run.define_metric("*", step_metric="tokens")
        while (entry := self._waiting.get()) is not None:
            values = {
                f"{entry['kind']}/{key}": value
                for key, value in entry.items()
                if key not in _AXES and value is not None
            }
            axes = {"tokens": entry["tokens"], "flops": entry["tokens"] * self._flops}
            lightning.log_metrics({**values, **axes}, step=entry["step"])
        run.finish()


_AXES = ("kind", "step", "steps", "tokens")

_SILENT: dict[str, Any] = {
    "init_timeout": START,
    "finish_timeout": EXIT - 5,
    "console": "off",
    "silent": True,
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "save_code": False,
    "host": "",
    "program": "",
    "username": "",
    "email": "",
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


def _given(experiment: Experiment, attempt: Attempt, found: str) -> dict[str, Any]:
    """The arguments of `wandb.init`: one W&B run an attempt, of an id that follows from it."""
    log = experiment.config["log"]
    return {
        "project": log["project"] or "scaling",
        "group": log["group"],
        "name": log["name"] or attempt.run_id,
        "tags": [str(tag) for tag in log["tags"]],
        "id": f"{attempt.run_id}-{attempt.number:03d}",
        "job_type": "train" if experiment.horizon else "trunk",
        "config": {**experiment.spec, "run": attempt.run_id, "attempt": attempt.number},
        "mode": found,
        "dir": str(attempt.folder / "wandb"),
        "resume": "allow",
    }


def _has_login() -> bool:
    try:
        return any("wandb" in host for host in netrc.netrc().hosts)
    except (OSError, netrc.NetrcParseError):
        return False
