"""W&B may refuse, hang, break or know no key: the result is the same, the delay is bounded, and no secret is sent."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scaling.train import mirror
from scaling.train.experiment import assemble
from tests.train.conftest import left, load, words

KEY = "c0ffee" * 6 + "beef"
CANARY = "canary-7f3a91d2"


class Failing(BaseHTTPRequestHandler):
    """Answers every request with 500."""

    def answer(self) -> None:
        self.send_error(500)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def refusing() -> Iterator[int]:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    yield port


@contextmanager
def hanging() -> Iterator[int]:
    """Takes connections and says nothing."""
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen(100)
        yield server.getsockname()[1]


@contextmanager
def failing() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Failing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def online(port: int, start: float) -> Callable[[], None]:
    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        os.environ.update(WANDB_BASE_URL=f"http://127.0.0.1:{port}", WANDB_API_KEY=KEY)
        mirror.SILENT["init_timeout"] = start

    return prepare


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    from scaling.train.run import train

    runs = tmp_path_factory.mktemp("without") / "runs"
    train(load(words(runs)))
    return left(runs)


@pytest.mark.parametrize(
    ("server", "start"),
    [
        (refusing, 2.0),
        pytest.param(hanging, 10.0, marks=pytest.mark.slow),
        pytest.param(failing, 10.0, marks=pytest.mark.slow),
        pytest.param(refusing, 10.0, marks=pytest.mark.slow),
    ],
)
def test_a_server_in_trouble_changes_nothing(server, start, tmp_path, fork, without):
    with server() as port:
        begun = time.monotonic()
        child = fork(words(tmp_path / "runs", log__wandb="online"), online(port, start))
        assert child.wait(90) == 0
        assert time.monotonic() - begun < start + 30 + 10
    assert left(tmp_path / "runs") == without


def test_offline_says_what_the_ledger_knows_and_no_secret(tmp_path, fork, without):
    """A canary in the environment and among the arguments is in no byte that is written."""

    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        os.environ["SECRET_TOKEN"] = CANARY
        os.environ["WANDB_API_KEY"] = KEY
        os.environ["HOSTNAME"] = CANARY
        sys.argv.append(f"--password={CANARY}")

    told = words(tmp_path / "runs", log__wandb="offline", log__group="a-group", log__tags="[one]")
    assert fork(told, prepare).wait() == 0
    assert left(tmp_path / "runs") == without
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    mirrored = [path for path in written if path.suffix == ".wandb"]
    assert len(mirrored) == 1
    assert mirrored[0].stem == f"run-{without.result['run']}-001"
    for path in written:
        content = path.read_bytes()
        assert CANARY.encode() not in content, path
        assert KEY.encode() not in content, path
    content = mirrored[0].read_bytes()
    assert sys.executable.encode() not in content
    for wanted in (b"a-group", b"train/loss", b"evaluate/loss", b"flops", b"optimizer"):
        assert wanted in content


def test_a_kill_with_the_mirror_on_loses_nothing(tmp_path, fork, without):
    from scaling.train import recorder
    from tests.train.test_resume import after

    def prepare() -> None:
        os.environ.pop("WANDB_MODE", None)
        recorder.evaluate = after(2, recorder.evaluate)

    told = words(tmp_path / "runs", log__wandb="offline")
    assert fork(told, prepare).wait() == -signal.SIGKILL
    assert fork([*told, "log.wandb=disabled"]).wait() == 0
    assert left(tmp_path / "runs") == without


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
