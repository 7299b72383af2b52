"""Loggers and progress show what the log has. W&B gets no secret, goes on where a run does, and can fail no run."""

import io
import itertools
import json
import os
import signal
import sys
import time
from typing import Any

import pandas
import pytest
from rich.console import Console

from scaling.training import callbacks, wandb_settings
from scaling.training.run import train as train_experiment
from tests.training.conftest import at, die, experiment, left, load, words
from tests.wandb_server.server import KEY, Server, serving

slow = pytest.mark.slow
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
    assert left(tmp_path / "runs") == unbroken
    paths = list((tmp_path / "runs").rglob("*"))
    for path in paths:
        assert CANARY not in str(path)
        content = path.read_bytes() if path.is_file() else b""
        assert not any(secret.encode() in content for secret in (CANARY, KEY)), path
    (content,) = (path.read_bytes() for path in paths if path.suffix == ".wandb")
    assert sys.executable.encode() not in content
    for wanted in (b"a-group", b"a name", b"row=GeLU", b"train/loss", b"evaluate/loss", b"flops", b"optimizer"):
        assert wanted in content


def test_the_mode_of_wandb_and_what_it_shows_of_files_and_addresses(monkeypatch, tmp_path):
    modes = [("auto", {}, "offline"), ("auto", {"WANDB_API_KEY": KEY}, "online"), ("online", {}, "online")]
    modes += [("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}, "disabled")]
    for line, environment, wanted in modes:
        for name in ("WANDB_API_KEY", "WANDB_MODE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**environment, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        assert wandb_settings.mode(load(words(tmp_path, log__wandb=line))) == wanted
    data = {"kind": "Files", "paths": [f"/home/{CANARY}/corpus.txt", "~/a.txt", "corpus/b.txt"], "rows": 3}
    shown = wandb_settings.shown({"data": data, "at": f"https://user:{CANARY}@example.org/c.txt", "lr": 1e-3})
    public = {"kind": "Files", "paths": ["corpus.txt", "a.txt", "corpus/b.txt"], "rows": 3}
    assert shown == {"data": public, "at": "https://example.org/c.txt", "lr": 1e-3}


def online(server: Server, **more: str) -> Any:
    """Prepare a process to send its runs to a server."""
    return lambda: os.environ.update({**server.environment(), **more, "WANDB_MODE": "online"})


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=slow)])
def test_an_interrupted_run_goes_on_in_its_wandb_run_and_no_row_is_twice(number, tmp_path, fork, unbroken):
    def cut_off() -> None:
        time.sleep(2)  # the client has sent what it was given
        os.kill(os.getpid(), number)

    with serving() as server:
        line = words(tmp_path / "runs", log__wandb="online")
        assert fork(line, online(server), (at("on_validation_start", 12, cut_off),)).wait() != 0
        assert fork(line, online(server)).wait() == 0
        (run,) = server.world.runs.values()
    assert left(tmp_path / "runs") == unbroken
    assert (run.name, run.state, run.summary["outcome"]) == (unbroken.result["run"], "finished", "finished")
    kinds = [(row, kind) for _, row in sorted(run.rows.items()) for kind in ("train", "evaluate")]
    sent = [((row["trainer/global_step"], k), row[f"{k}/loss"]) for row, k in kinds if f"{k}/loss" in row]
    assert sent == list(unbroken.losses.items())


def test_steps_that_are_trained_again_are_no_warning_of_wandb(tmp_path, fork, capfd):
    line = words(tmp_path / "runs", log__wandb="offline")
    assert fork(line, None, (at("on_train_batch_end", 11, die),)).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    assert "WARNING" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["refuses", "dies", *(pytest.param(kind, marks=slow) for kind in ("hang", "status"))])
def test_a_server_in_trouble_costs_seconds_and_changes_nothing(kind, tmp_path, fork, unbroken):
    with serving() as server:
        is_short = kind in ("refuses", "dies")
        prepare = online(server, **({"WANDB_INIT_TIMEOUT": "3", "WANDB_FINISH_TIMEOUT": "2"} if is_short else {}))
        server.fail("cut" if is_short else kind, times=10**6, seconds=120, matches=lambda _: len(server.requests) > 2)
        if kind == "refuses":
            server.stop()
        begun = time.monotonic()
        assert fork(words(tmp_path / "runs", log__wandb="online"), prepare).wait(600) == 0
        # A run of a second: W&B may take 10 to start and 15 to end, and its client 10 to leave.
        assert time.monotonic() - begun < 60.0
        assert kind == "refuses" or len(server.requests) > 2
    assert left(tmp_path / "runs") == unbroken


def test_the_log_and_a_logger_of_the_config_have_each_update_and_evaluation(base):
    """A line of JSON with each key that docs/training.md names, and none of Lightning's."""
    (file,) = base[0].glob("store/*/log.jsonl")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    trained = [entry for entry in entries if entry["kind"] == "train"]
    assert [entry["step"] for entry in trained] == list(range(1, 13))
    keys = {"loss", "gradient_norm", "learning_rate", "tokens", "tokens_per_second", "steps"}
    assert all(keys <= entry.keys() for entry in trained)
    assert [entry["step"] for entry in entries if entry["kind"] == "evaluate"] == [1, 12]
    assert {entry["kind"] for entry in entries} == {"start", "resume", "train", "evaluate", "end"}
    assert not any(name.startswith(("train/", "epoch")) for entry in entries for name in entry)
    table = pandas.read_csv(file.parent / "csv-001" / "metrics.csv")
    assert len(table["evaluate/loss"].dropna()) == 2
    assert list(table["train/loss"].dropna()) == pytest.approx([entry["loss"] for entry in trained], rel=1e-6)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_person_sees_each_step_each_evaluation_and_the_time_left(is_terminal, tmp_path, capsys, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120)
    monkeypatch.setattr(callbacks, "LINES", 0.0)
    entries: list[Any] = []
    with callbacks.ProgressDisplay(console) as display:
        train_experiment(experiment(tmp_path), listeners=[display, entries.append])
    steps = [entry["step"] for entry in entries if entry["kind"] == "progress"]
    assert [step for step, _ in itertools.groupby(steps)] == list(range(13))
    printed = console.file.getvalue() if is_terminal else capsys.readouterr().err  # type: ignore[attr-defined]
    for wanted in ("12 of 12", "held-out loss", "tokens/s", *(() if is_terminal else ("evaluating", " left"))):
        assert wanted in printed
