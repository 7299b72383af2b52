"""W&B is line what the ledger knows and no secret, goes on where a run does, and its troubles change nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from scaling.training import wandb_settings
from tests.training.conftest import left, load, same, words
from tests.wandb_server.server import Server, serving

KEY = "c0ffee" * 6 + "beef"
CANARY = "canary-7f3a91d2"
EVER = 10**6
KINDS = ("train", "evaluate")

# What W&B reads to describe a run, its code, its machine or its user, by each of its ways to name a setting.
VARIABLES = (
    *("NOTES", "TAGS", "NAME", "JOB_TYPE", "RUN_GROUP", "RUN_NOTES", "RUN_TAGS", "RUN_NAME", "RUN_JOB_TYPE"),
    *("DESCRIPTION", "USERNAME", "EMAIL", "USER_EMAIL", "HOST", "PROGRAM", "PROGRAM_RELPATH", "PROGRAM_ABSPATH"),
    *("GIT_COMMIT", "GIT_REMOTE_URL", "GIT_ROOT", "DOCKER", "NOTEBOOK_NAME", "JOB_NAME", "CODE_DIR", "IGNORE_GLOBS"),
    *("_LABEL", "_EXECUTABLE", "_JUPYTER_NAME", "_JUPYTER_PATH", "_RUNQUEUE_ITEM_ID", "_STATS_GPU_TYPE"),
    *("LAUNCH_CONFIG_PATH", "SYNC_DIR_SUFFIX", "_SYNC_DIR_SUFFIX"),
)


def test_offline_it_holds_what_the_ledger_knows_and_no_secret(tmp_path, fork, unbroken):
    """A canary in the environment, in W&B's settings and among the arguments is in no name and no byte."""

    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        os.environ |= {f"WANDB_{name}": CANARY for name in VARIABLES}
        os.environ |= {"WANDB_LAUNCH": "true", "WANDB_CONFIG": f'{{"canary": "{CANARY}"}}'}
        os.environ |= {"WANDB_ARTIFACTS": f'{{"{CANARY}": {{}}}}', "TRAINING_JOB_NAME": CANARY, "CURRENT_HOST": CANARY}
        os.environ |= {"WANDB_SAVE_CODE": "true", "WANDB_DISABLE_CODE": "false", "WANDB_DISABLE_GIT": "false"}
        os.environ |= {"WANDB_CONFIG_DIR": str(tmp_path / "home"), "WANDB_API_KEY": KEY}
        os.environ |= {"SECRET_TOKEN": CANARY, "HOSTNAME": CANARY}
        sys.argv.append(f"--password={CANARY}")

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings").write_text(f"[default]\nrun_notes = {CANARY}\nrun_group = {CANARY}\n")
    line = words(
        tmp_path / "runs", log__wandb="offline", log__group="a-group", log__name="a name", log__tags="[row=GeLU]"
    )
    assert fork(line, prepare).wait(900) == 0
    same(left(tmp_path / "runs"), unbroken)
    paths = list((tmp_path / "runs").rglob("*"))
    (file,) = (path for path in paths if path.suffix == ".wandb")
    for path in paths:
        assert CANARY not in str(path)
        content = path.read_bytes() if path.is_file() else b""
        assert not any(secret.encode() in content for secret in (CANARY, KEY)), path
    content = file.read_bytes()
    assert sys.executable.encode() not in content
    for wanted in (b"a-group", b"a name", b"row=GeLU", b"train/loss", b"evaluate/loss", b"flops", b"optimizer"):
        assert wanted in content


@pytest.mark.parametrize(
    ("line", "environment", "wanted"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": KEY}, "online"),
        ("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}, "disabled"),
        ("auto", {"WANDB_MODE": "offline"}, "offline"),
        ("disabled", {"WANDB_API_KEY": KEY}, "disabled"),
        ("online", {}, "online"),
    ],
)
def test_the_mode(line, environment, wanted, monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert wandb_settings.mode(load(words(tmp_path, log__wandb=line))) == wanted


def test_of_files_and_addresses_only_what_is_public_is_shown():
    data = {"kind": "Files", "paths": [f"/home/{CANARY}/corpus.txt", "~/a.txt", "corpus/b.txt"], "rows": 3}
    line = wandb_settings.shown({"data": data, "at": f"https://user:{CANARY}@example.org/c.txt", "lr": 1e-3})
    own = {"kind": "Files", "paths": ["corpus.txt", "a.txt", "corpus/b.txt"], "rows": 3}
    assert line == {"data": own, "at": "https://example.org/c.txt", "lr": 1e-3}


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_goes_on_in_its_wandb_run_and_no_row_is_twice(ended, tmp_path, fork, unbroken):
    from scaling.training.evaluation import Evaluation

    with serving() as server:
        environment = server.environment()

        def online() -> None:
            os.environ.pop("WANDB_MODE", None)
            os.environ.update(environment)

        def cut_off() -> None:
            """The second evaluation, that of the last step, is begun and not ended."""
            online()
            before, calls = Evaluation.measured, []

            def evaluate(*given):
                calls.append(given)
                if len(calls) == 2:
                    time.sleep(2)  # the client has sent what it was given
                    os.kill(os.getpid(), ended)
                return before(*given)

            Evaluation.measured = evaluate  # type: ignore[method-assign, assignment]

        line = words(tmp_path / "runs", log__wandb="online")
        assert fork(line, cut_off).wait() != 0
        assert fork(line, online).wait() == 0
        (run,) = server.world.runs.values()
    same(left(tmp_path / "runs"), unbroken)
    assert (run.name, run.state, run.summary["outcome"]) == (unbroken.result["run"], "finished", "finished")
    rows = [run.rows[at] for at in sorted(run.rows)]
    shown = [
        ((row["trainer/global_step"], kind), row[f"{kind}/loss"])
        for row in rows
        for kind in KINDS
        if f"{kind}/loss" in row
    ]
    assert shown == list(unbroken.losses.items())


BOUND = 60.0  # seconds of a run of a second: W&B may take 10 to start and 15 to end, and its client 10 to leave
FAST = [("refuses", 0), ("dies", 2), ("wrong key", 0)]
SLOW = [(kind, after) for kind in ("hangs", "fails", "dies") for after in (0, 1, 2, 3, 5)]


@pytest.mark.parametrize(
    ("kind", "after"), [*FAST, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW if one not in FAST)]
)
def test_a_server_in_trouble_costs_seconds_and_changes_nothing(kind, after, tmp_path, fork, unbroken):
    with serving() as server:
        environment = server.environment()

        def online() -> None:
            os.environ.pop("WANDB_MODE", None)
            os.environ.update(environment)
            if kind in ("refuses", "dies"):
                os.environ |= {"WANDB_INIT_TIMEOUT": "3", "WANDB_FINISH_TIMEOUT": "2"}

        befall(server, kind, after)
        begun = time.monotonic()
        assert fork(words(tmp_path / "runs", log__wandb="online"), online).wait(600) == 0
        assert time.monotonic() - begun < BOUND
        assert kind == "refuses" or len(server.requests) > after
    same(left(tmp_path / "runs"), unbroken)


def befall(server: Server, kind: str, after: int) -> None:
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
            server.fail("hang", times=EVER, seconds=120, matches=late)
        case "fails":
            server.fail("status", times=EVER, matches=late)
        case "dies":
            server.fail("cut", times=EVER, matches=late)  # on connections that are open
            threading.Thread(target=stop, daemon=True).start()
