"""What W&B is told of a run: what the ledger knows, and no secret."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from scaling.training import mirror
from scaling.training.experiment import assemble
from tests.training.conftest import left, load, words

KEY = "c0ffee" * 6 + "beef"
CANARY = "canary-7f3a91d2"


def test_offline_says_what_the_ledger_knows_and_no_secret(tmp_path, fork, unbroken):
    """A canary in the environment and among the arguments is in no byte that is written."""

    def prepare() -> None:
        mirror.EXIT = 600.0  # it is not given up, however busy the machine
        os.environ.pop("WANDB_MODE", None)
        os.environ["SECRET_TOKEN"] = CANARY
        os.environ["WANDB_API_KEY"] = KEY
        os.environ["HOSTNAME"] = CANARY
        sys.argv.append(f"--password={CANARY}")

    told = words(tmp_path / "runs", log__wandb="offline", log__group="a-group", log__tags="[one]")
    assert fork(told, prepare).wait(900) == 0
    assert left(tmp_path / "runs") == unbroken
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    mirrored = [path for path in written if path.suffix == ".wandb"]
    assert len(mirrored) == 1
    assert mirrored[0].stem == f"run-{unbroken.result['run']}-001"
    for path in written:
        content = path.read_bytes()
        assert CANARY.encode() not in content, path
        assert KEY.encode() not in content, path
    content = mirrored[0].read_bytes()
    assert sys.executable.encode() not in content
    for wanted in (b"a-group", b"train/loss", b"evaluate/loss", b"flops", b"optimizer"):
        assert wanted in content


# What W&B reads to describe a run, its code, its machine or its user, by each of its ways to name a setting.
VARIABLES = (
    *("NOTES", "TAGS", "NAME", "JOB_TYPE", "RUN_GROUP", "RUN_NOTES", "RUN_TAGS", "RUN_NAME", "RUN_JOB_TYPE"),
    *("DESCRIPTION", "USERNAME", "EMAIL", "USER_EMAIL", "HOST", "PROGRAM", "PROGRAM_RELPATH", "PROGRAM_ABSPATH"),
    *("GIT_COMMIT", "GIT_REMOTE_URL", "GIT_ROOT", "DOCKER", "NOTEBOOK_NAME", "JOB_NAME", "CODE_DIR", "IGNORE_GLOBS"),
    *("_LABEL", "_EXECUTABLE", "_JUPYTER_NAME", "_JUPYTER_PATH", "_RUNQUEUE_ITEM_ID", "_STATS_GPU_TYPE"),
    *("LAUNCH_CONFIG_PATH", "SYNC_DIR_SUFFIX", "_SYNC_DIR_SUFFIX"),
)


def test_no_variable_of_wandbs_reaches_the_files(tmp_path, fork):
    def prepare() -> None:
        mirror.EXIT = 600.0
        os.environ.pop("WANDB_MODE", None)
        os.environ |= {f"WANDB_{name}": CANARY for name in VARIABLES}
        os.environ |= {"WANDB_LAUNCH": "true", "WANDB_CONFIG": f'{{"canary": "{CANARY}"}}'}
        os.environ |= {"WANDB_ARTIFACTS": f'{{"{CANARY}": {{}}}}', "TRAINING_JOB_NAME": CANARY, "CURRENT_HOST": CANARY}
        os.environ |= {"WANDB_CONFIG_DIR": str(tmp_path / "home")}
        os.environ |= {"WANDB_SAVE_CODE": "true", "WANDB_DISABLE_CODE": "false", "WANDB_DISABLE_GIT": "false"}

    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings").write_text(f"[default]\nrun_notes = {CANARY}\nrun_group = {CANARY}\n")
    assert fork(words(tmp_path / "runs", log__wandb="offline"), prepare).wait(900) == 0
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    (mirrored,) = [path for path in written if path.suffix == ".wandb"]
    assert b"train/loss" in mirrored.read_bytes()
    for path in (*written, *(tmp_path / "runs").rglob("*")):
        assert CANARY not in str(path)
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


def test_a_process_keeps_its_own_settings_of_wandb(monkeypatch):
    import wandb

    monkeypatch.setattr(wandb.setup().settings, "run_notes", "a person's")
    with mirror._without_environment():
        assert wandb.setup().settings.run_notes is None
    assert wandb.setup().settings.run_notes == "a person's"
    wandb.teardown()  # a process forked from this one would speak to the service that was set up here


def test_a_kill_with_the_mirror_on_loses_nothing(tmp_path, fork, unbroken):
    from scaling.training.evaluation import Evaluation
    from tests.training.test_resume import after

    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        Evaluation.measured = after(2, Evaluation.measured)

    told = words(tmp_path / "runs", log__wandb="offline")
    assert fork(told, prepare).wait() == -signal.SIGKILL
    assert fork([*told, "log.wandb=disabled"]).wait() == 0
    assert left(tmp_path / "runs") == unbroken


@pytest.mark.parametrize(
    ("told", "environment", "wanted"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": KEY}, "online"),
        ("auto", {"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}, "disabled"),
        ("auto", {"WANDB_MODE": "offline"}, "offline"),
        ("disabled", {"WANDB_API_KEY": KEY}, "disabled"),
        ("online", {}, "online"),
    ],
)
def test_the_mode(told, environment, wanted, monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert mirror.mode(assemble(load(words(Path("unused"), log__wandb=told)))) == wanted


def test_of_files_and_addresses_only_what_is_public_is_shown():
    data = {"kind": "Files", "paths": [f"/home/{CANARY}/corpus.txt", "~/a.txt", "corpus/b.txt"], "rows": 3}
    told = mirror.shown({"data": data, "at": f"https://user:{CANARY}@example.org/c.txt", "lr": 1e-3})
    assert CANARY not in str(told)
    assert told["data"]["paths"] == ["corpus.txt", "a.txt", "corpus/b.txt"]
    assert told["at"] == "https://example.org/c.txt"
    assert told["lr"] == 1e-3
