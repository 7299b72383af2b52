"""Loggers and progress show what the log has. W&B gets no secret, goes on where a run does, and can fail no run."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from rich.console import Console

from scaling.ledger import Ledger
from scaling.training import callbacks, wandb_settings
from scaling.training.run import train as train_experiment
from tests.training.conftest import at, experiment, left, load, same, train, words
from tests.wandb_server.server import Server, serving

KEY = "c0ffee" * 6 + "beef"
CANARY = "canary-7f3a91d2"

# What W&B reads to describe a run, its code, its machine or its user.
VARIABLES = ("NOTES", "TAGS", "NAME", "JOB_TYPE", "RUN_GROUP", "RUN_NAME", "USERNAME", "EMAIL", "HOST", "PROGRAM")
VARIABLES += ("GIT_COMMIT", "GIT_REMOTE_URL", "DOCKER", "NOTEBOOK_NAME", "CODE_DIR", "SYNC_DIR_SUFFIX", "_EXECUTABLE")


def test_offline_wandb_holds_what_the_ledger_knows_and_no_secret(tmp_path, fork, unbroken):
    """A canary in the environment, in W&B's settings and among the arguments is in no name and no byte."""

    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        os.environ |= {f"WANDB_{name}": CANARY for name in VARIABLES}
        os.environ |= {"WANDB_SAVE_CODE": "true", "WANDB_CONFIG": f'{{"canary": "{CANARY}"}}'}
        os.environ |= {"WANDB_CONFIG_DIR": str(tmp_path / "home"), "WANDB_API_KEY": KEY}
        os.environ |= {"SECRET_TOKEN": CANARY, "HOSTNAME": CANARY}
        sys.argv.append(f"--password={CANARY}")

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings").write_text(f"[default]\nrun_notes = {CANARY}\nrun_group = {CANARY}\n")
    log = {"log.wandb": "offline", "log.group": "a-group", "log.name": "a name", "log.tags": "[row=GeLU]"}
    assert fork(words(tmp_path / "runs", **log), prepare).wait(900) == 0
    same(left(tmp_path / "runs"), unbroken)
    paths = list((tmp_path / "runs").rglob("*"))
    for path in paths:
        assert CANARY not in str(path)
        content = path.read_bytes() if path.is_file() else b""
        assert not any(secret.encode() in content for secret in (CANARY, KEY)), path
    (content,) = (path.read_bytes() for path in paths if path.suffix == ".wandb")
    assert sys.executable.encode() not in content
    for wanted in (b"a-group", b"a name", b"row=GeLU", b"train/loss", b"evaluate/loss", b"flops", b"optimizer"):
        assert wanted in content


MODES = [("auto", {}, "offline"), ("auto", {"WANDB_API_KEY": KEY}, "online"), ("online", {}, "online")]
MODES += [("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}, "disabled")]


@pytest.mark.parametrize(("line", "environment", "wanted"), MODES)
def test_the_mode_of_wandb(line, environment, wanted, monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert wandb_settings.mode(load(words(tmp_path, log__wandb=line))) == wanted


def test_of_files_and_addresses_only_what_is_public_is_shown():
    data = {"kind": "Files", "paths": [f"/home/{CANARY}/corpus.txt", "~/a.txt", "corpus/b.txt"], "rows": 3}
    shown = wandb_settings.shown({"data": data, "at": f"https://user:{CANARY}@example.org/c.txt", "lr": 1e-3})
    public = {"kind": "Files", "paths": ["corpus.txt", "a.txt", "corpus/b.txt"], "rows": 3}
    assert shown == {"data": public, "at": "https://example.org/c.txt", "lr": 1e-3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_goes_on_in_its_wandb_run_and_no_row_is_twice(number, tmp_path, fork, unbroken):
    with serving() as server:
        environment = server.environment()

        def online() -> None:
            os.environ.pop("WANDB_MODE", None)
            os.environ.update(environment)

        def cut_off() -> None:
            time.sleep(2)  # the client has sent what it was given
            os.kill(os.getpid(), number)

        line = words(tmp_path / "runs", log__wandb="online")
        assert fork(line, online, (at("on_validation_start", 12, cut_off),)).wait() != 0
        assert fork(line, online).wait() == 0
        (run,) = server.world.runs.values()
    same(left(tmp_path / "runs"), unbroken)
    assert (run.name, run.state, run.summary["outcome"]) == (unbroken.result["run"], "finished", "finished")
    rows = [run.rows[place] for place in sorted(run.rows)]
    shown = [
        ((row["trainer/global_step"], kind), row[f"{kind}/loss"])
        for row in rows
        for kind in ("train", "evaluate")
        if f"{kind}/loss" in row
    ]
    assert shown == list(unbroken.losses.items())


BOUND = 60.0  # seconds of a run of a second: W&B may take 10 to start and 15 to end, and its client 10 to leave
TROUBLES: list[Any] = [("refuses", 0), ("dies", 2), ("wrong key", 0)]
TROUBLES += [pytest.param(*one, marks=pytest.mark.slow) for one in (("hangs", 0), ("hangs", 3), ("fails", 1))]


@pytest.mark.parametrize(("kind", "after"), TROUBLES)
def test_a_server_in_trouble_costs_seconds_and_changes_nothing(kind, after, tmp_path, fork, unbroken):
    with serving() as server:
        environment = server.environment()

        def online() -> None:
            os.environ.pop("WANDB_MODE", None)
            os.environ.update(environment)
            if kind in ("refuses", "dies"):
                os.environ |= {"WANDB_INIT_TIMEOUT": "3", "WANDB_FINISH_TIMEOUT": "2"}

        trouble(server, kind, after)
        begun = time.monotonic()
        assert fork(words(tmp_path / "runs", log__wandb="online"), online).wait(600) == 0
        assert time.monotonic() - begun < BOUND
        assert kind == "refuses" or len(server.requests) > after
    same(left(tmp_path / "runs"), unbroken)


def trouble(server: Server, kind: str, after: int) -> None:
    """What goes wrong from the request after `after` on."""

    def late(_: object) -> bool:
        return len(server.requests) > after

    def stop() -> None:
        while len(server.requests) <= after:
            time.sleep(0.01)
        server.stop()

    match kind:
        case "refuses":
            server.stop()
        case "wrong key":
            server.key = "0" * len(server.key)
        case "hangs":
            server.fail("hang", times=10**6, seconds=120, matches=late)
        case "fails":
            server.fail("status", times=10**6, matches=late)
        case "dies":
            server.fail("cut", times=10**6, matches=late)  # on connections that are open
            threading.Thread(target=stop, daemon=True).start()


def test_a_person_s_loggers_join_beside_our_own_run_of_wandb(tmp_path, unbroken, monkeypatch):
    import wandb

    table = CSVLogger(tmp_path, name="own", version="", flush_logs_every_n_steps=1)
    with serving() as server:
        for name, value in {**server.environment(), "WANDB_MODE": "online", "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        wandb.teardown()
        own = WandbLogger(project="mine", name="a person's", save_dir=tmp_path)
        try:
            train(words(tmp_path / "runs", log__wandb="online"), logger=[own, table])
            wandb.finish()
        finally:
            wandb.teardown()  # a process forked from this one would speak to the service that was set up here
        runs = list(server.world.runs.values())
    same(left(tmp_path / "runs"), unbroken)
    trained = [loss for (_, kind), loss in unbroken.losses.items() if kind == "train"]
    assert list(read_csv(tmp_path / "own").values()) == pytest.approx(trained, rel=1e-6)
    shown = {
        run.given["displayName"]: [row["train/loss"] for _, row in sorted(run.rows.items()) if "train/loss" in row]
        for run in runs
    }
    assert shown == {"a person's": trained, Ledger.open(tmp_path / "runs").status(unbroken.result["run"]).name: trained}


# Other loggers


def read_csv(folder: Path) -> dict[int, float]:
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert any(row["evaluate/loss"] for row in rows)
    return {int(row["step"]): float(row["train/loss"]) for row in rows if row["train/loss"]}


def test_a_logger_of_the_config_keeps_the_losses(base, unbroken):
    """It changes nothing of the run: the other tests compare their runs, which have none, with this one."""
    trained = {step: loss for (step, kind), loss in unbroken.losses.items() if kind == "train"}
    assert read_csv(base[0] / "store" / base[1] / "csv-001") == pytest.approx(trained, rel=1e-6)


def test_the_log_has_a_line_of_json_for_each_update_and_evaluation(base):
    """Each key that docs/training.md names, and none of Lightning's."""
    (file,) = base[0].glob("store/*/log.jsonl")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    trained = [entry for entry in entries if entry["kind"] == "train"]
    assert [entry["step"] for entry in trained] == list(range(1, 13))
    keys = {"loss", "gradient_norm", "learning_rate", "tokens", "tokens_per_second", "steps"}
    assert all(keys <= entry.keys() for entry in trained)
    assert [entry["step"] for entry in entries if entry["kind"] == "evaluate"] == [1, 12]
    assert {entry["kind"] for entry in entries} == {"start", "resume", "train", "evaluate", "end"}
    assert not any(name.startswith(("train/", "epoch")) for entry in entries for name in entry)


# Progress


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_person_sees_each_step_each_evaluation_and_the_time_left(is_terminal, tmp_path, capsys, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120)
    monkeypatch.setattr(callbacks, "LINES", 0.0)
    entries: list[Any] = []
    with callbacks.Teller(console) as teller:
        train_experiment(experiment(tmp_path), tell=[teller, entries.append])
    steps = [entry["step"] for entry in entries if entry["kind"] == "progress"]
    assert [step for step, _ in itertools.groupby(steps)] == list(range(13))
    printed = console.file.getvalue() if is_terminal else capsys.readouterr().err  # type: ignore[attr-defined]
    for wanted in ("12 of 12", "held-out loss", "tokens/s", *(() if is_terminal else ("evaluating", " left"))):
        assert wanted in printed
