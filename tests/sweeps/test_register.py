"""Registering by the client's own call: what the server gets, and how each refusal ends."""

from __future__ import annotations

import pytest

from scaling.cli import main
from tests.sweeps.conftest import tree, write


@pytest.fixture
def path(client, tmp_path):
    return str(write(tmp_path / "small.yaml"))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scaling: ")
    return line


def test_the_server_has_the_file_as_it_stands(client, path, capsys):
    assert main(["sweep", path]) == 0
    assert "registered as me/scaling/s0000000" in capsys.readouterr().out
    assert client.world.sweeps["s0000000"].config == tree()
    assert main(["sweep", path, "--count", "3"]) == 0
    assert client.world.sweeps["s0000001"].config == tree(run_cap=3)


def test_a_wrong_key_is_one_line_and_nothing_is_sent_after_it(client, path, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    assert main(["sweep", path]) == 2
    assert "check the key" in one_line(capsys)
    assert not client.world.sweeps
    assert not any("UpsertSweep" in request.query for request in client.requests)


def test_a_project_that_the_key_may_not_write_to_is_one_line(client, path, capsys):
    client.fail("status", status=403, times=100, matches=lambda request: "UpsertSweep" in request.query)
    assert main(["sweep", path]) == 2
    assert "may the key write to me/scaling?" in one_line(capsys)
    assert not client.world.sweeps


def test_without_a_key_nothing_is_sent(client, path, capsys, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["sweep", path]) == 2
    line = one_line(capsys)
    assert all(word in line for word in ("no W&B key: nothing was sent", "`wandb login`", "--local", "--dry-run"))
    assert main(["sweep", path, "--dry-run"]) == 0
    capsys.readouterr()
    assert not client.requests


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "2"], "--workers=2: is an option of --local; add --local"),
        (["--count", "0"], "expected a positive whole number"),
        (["--executor", "ray"], "--executor='ray': is an option of --local"),
        (["seed=1"], "seed=1: a registered sweep's agents read the file alone"),
    ],
)
def test_words_that_contradict_are_refused(words, said, tmp_path, capsys):
    assert main(["sweep", str(write(tmp_path / "small.yaml")), *words]) == 2
    assert said in one_line(capsys)
