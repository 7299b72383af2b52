"""Mirror: a run's log entries shown in W&B. The ledger is the record; whatever happens here, the training is the same.

A thread of its own holds W&B, so that training waits for it at no time but the end, and there for a bounded one. Only
what the ledger knows is sent: the spec, the entries, the result. No arguments, environment, code, or facts of the host.

In a sweep the agent names the W&B run, and a stop that the server asks for (hyperband's, or a person's) prunes it.
"""

from __future__ import annotations

import netrc
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scaling.ledger.document import flat
from scaling.training.background import BackgroundListener, Entry
from scaling.training.point import point
from scaling.training.run_name import run_name
from scaling.training.signals import PRUNE

if TYPE_CHECKING:
    from scaling.ledger import Attempt, Ledger
    from scaling.training.experiment import Experiment

START, EXIT = 10.0, 25.0  # seconds that W&B may take, unless WANDB_INIT_TIMEOUT and WANDB_FINISH_TIMEOUT set others
STOP_WAIT = 45.0  # seconds in which W&B's client hears of a stop: it looks every 15, and may need more than one look

# The names under which entries are logged: KIND/KEY.
METRICS = (
    *(f"train/{key}" for key in ("loss", "gradient_norm", "learning_rate", "tokens_per_second", "mfu")),
    *(f"evaluate/{key}" for key in ("loss", "loss_plain", "loss_text", "bits_per_byte", "accuracy")),
    *(f"evaluate/{key}" for key in ("excess", "entropy", "targets")),
    "evaluate/score",
    "spike/above",
)
SWEEP = "WANDB_SWEEP_ID"  # set by W&B's agent, and by ours
AGENT = "SCALING_AGENT"  # set by ours, whose SIGTERM is never W&B's wish


def mode(experiment: Experiment) -> str:
    """`log.wandb`, or what WANDB_MODE or a missing key make of `auto`."""
    setting = experiment.config["log.wandb"]
    if setting != "auto":
        return setting
    named = os.environ.get("WANDB_MODE", "")
    if named in ("online", "offline", "disabled"):
        return named
    return "online" if os.environ.get("WANDB_API_KEY") or has_login() else "offline"


class Listener(Protocol):
    """Hears a run's log; `pruned` tells whether a SIGTERM was W&B's request to stop the run early."""

    def __call__(self, entry: Entry) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None: ...

    def pruned(self) -> bool: ...


class Deaf:
    """Where W&B is disabled, or the rank has no attempt."""

    def __call__(self, entry: Entry) -> None: ...

    def end(self, result: Mapping[str, Any]) -> None: ...

    def pruned(self) -> bool:
        return False


@contextmanager
def mirrored(experiment: Experiment, attempt: Attempt | None) -> Iterator[Listener]:
    """The receiver of each entry of the log, and at the end of the result."""
    chosen = mode(experiment)
    if attempt is None or chosen == "disabled":
        yield Deaf()
        return
    mirror = Mirror(experiment, attempt.run_id, attempt.number, attempt.run, chosen)
    try:
        yield mirror
    finally:
        mirror.close()


def report_again(experiment: Experiment, ledger: Ledger, result: Mapping[str, Any]) -> None:
    """Show a run that was done before in the W&B run that a sweep has given it, so that the sweep knows its metric."""
    if SWEEP not in os.environ or mode(experiment) == "disabled":
        return
    run, number = result["run"], result["attempt"]
    mirror = Mirror(experiment, run, number, ledger.folder(run), mode(experiment))
    for entry in ledger.history(run):
        if entry.get("kind") in ("train", "evaluate", "spike"):
            mirror(entry)
    mirror.end(result)
    mirror.close()


class Mirror:
    """The entries on their way to W&B."""

    def __init__(self, experiment: Experiment, run: str, attempt: int, folder: Path, mode: str):
        self._asked = threading.Event()
        self._online = mode == "online"
        self._flops = experiment.cost.flops_train_per_token
        self._given = _given(experiment, run, attempt, folder, mode)
        self._result: Mapping[str, Any] = {}
        self._aside = BackgroundListener("W&B", self._mirror, _seconds("WANDB_FINISH_TIMEOUT", EXIT - 5) + 5)

    def __call__(self, entry: Entry) -> None:
        self._aside(entry)

    def end(self, result: Mapping[str, Any]) -> None:
        """Report how the run ended; without it W&B shows the run as failed."""
        self._result = result

    def pruned(self) -> bool:
        """Whether W&B requests that the run of a sweep stop. The agent's SIGTERM comes before its client knows why."""
        may_prune = self._online and SWEEP in os.environ and AGENT not in os.environ
        return may_prune and self._asked.wait(STOP_WAIT)

    def _stop(self) -> None:
        """W&B asks for a stop: the run saves and leaves at its next step."""
        self._asked.set()
        os.kill(os.getpid(), PRUNE if SWEEP in os.environ else signal.SIGTERM)

    def close(self) -> None:
        """Let W&B finish, for a bounded time."""
        self._aside.close()

    def _mirror(self, entries: Iterator[Entry]) -> None:
        import wandb
        from lightning.pytorch.loggers import WandbLogger

        Path(self._given["dir"]).mkdir(exist_ok=True)
        limits = {key: _seconds(f"WANDB_{key.upper()}", SILENT[key]) for key in ("init_timeout", "finish_timeout")}
        with _without_environment():
            run = wandb.init(**self._given, settings=wandb.Settings(**{**SILENT, **limits}, stop_fn=self._stop))
        if self._given["mode"] == "online" and run.url:  # asked for offline, W&B prints a warning
            (Path(self._given["dir"]) / "address").write_text(run.url, encoding="utf-8")
        lightning = WandbLogger(experiment=run)
        for axis in ("tokens", "flops"):
            run.define_metric(axis, hidden=True)
        run.define_metric("*", step_metric="tokens")
        for entry in entries:
            values = {
                f"{entry['kind']}/{key}": value
                for key, value in flat(entry).items()
                if key not in _AXES and value is not None and not isinstance(value, list)
            }
            axes = {"tokens": entry["tokens"], "flops": entry["tokens"] * self._flops}
            lightning.log_metrics({**values, **axes}, step=entry["step"])
        for key in _ENDS:
            if self._result.get(key) is not None:
                run.summary[key] = self._result[key]
        run.finish(0 if self._result else 1)


_AXES = ("kind", "step", "steps", "tokens")
_ENDS = ("outcome", "loss", "score", "step", "reason")

SILENT: dict[str, Any] = {
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
    "sagemaker_disable": True,
}

# Settings that the variables and files of W&B may give: where to, as whom, for which sweep, over which network.
OUTSIDE = re.compile(
    "base_url|app_url_override|api_key|identity_token_file|credentials_file|settings_system|entity|organization|project"
    "|run_id|sweep_id|sweep_param_path|https?_proxy|insecure_disable_ssl|azure_account_url_to_access_key"
    "|x_(proxies|extra_http_headers|(file_stream|file_transfer|graphql|service)_.*)"
)


@contextmanager
def _without_environment() -> Iterator[None]:
    """W&B's settings without those of its environment variables and files, as WANDB_NOTES, while a run begins."""
    import wandb

    shared, plain = wandb.setup().settings, wandb.Settings()
    read = {name: getattr(shared, name) for name in type(plain).model_fields if not OUTSIDE.fullmatch(name)}
    changed = {name: value for name, value in read.items() if value != getattr(plain, name)}
    for name in changed:
        setattr(shared, name, getattr(plain, name))
    try:
        yield
    finally:
        for name, value in changed.items():
            setattr(shared, name, value)


def _given(experiment: Experiment, run: str, attempt: int, folder: Path, mode: str) -> dict[str, Any]:
    """The arguments of `wandb.init`: one W&B run an attempt, of an id that follows from it."""
    log = experiment.config["log"]
    return {
        "project": log["project"] or "scaling",
        "group": log["group"],
        "name": run_name(experiment),
        "tags": [str(tag) for tag in log["tags"]],
        "id": f"{run}-{attempt:03d}",
        "job_type": "train" if experiment.horizon else "trunk",
        "config": {**shown(experiment.spec), "run": run, "attempt": attempt, "point": point(experiment)},
        "mode": mode,
        "dir": str(folder / "wandb"),
        "resume": "allow",
    }


def shown(value: Any) -> Any:
    """What W&B may see of a spec: of a file its name alone, of an address neither user nor password."""
    if isinstance(value, Mapping):
        return {key: shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if "://" in value:
        return re.sub(r"//[^/@]*@", "//", value)
    return Path(value).name if value.startswith(("/", "~")) else value


def _seconds(name: str, otherwise: float) -> float:
    """The seconds that a variable of W&B's holds, where it holds any."""
    try:
        return float(os.environ[name])
    except (KeyError, ValueError):
        return otherwise


def has_login() -> bool:
    try:
        return any("wandb" in host for host in netrc.netrc().hosts)
    except (OSError, netrc.NetrcParseError):
        return False
