"""What an agent says to the server: patient with one that is busy or away, plain with one that says no."""

from __future__ import annotations

import time
from email.message import Message
from urllib.error import HTTPError

import pytest
import yaml

from scaling.errors import ScalingError
from scaling.sweeps import server as ours
from scaling.sweeps.server import Path, Refused
from tests.sweeps.conftest import tree
from tests.wandb_server.server import Server

PATH = Path("me", "proj", "s0000000")


@pytest.fixture
def asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> ours.Server:
    monkeypatch.setattr(ours, "FIRST", 0.02)
    server.world.upsert_sweep({"config": yaml.safe_dump(tree()), "projectName": "proj"})
    return ours.Server(server.url, server.key)


def test_an_agent_hears_of_its_runs_and_of_the_end(asked, server):
    agent = asked.register(PATH)
    told = [asked.heartbeat(agent, []) for _ in range(5)]
    assert [command["type"] for (command,) in told] == ["run"] * 4 + ["exit"]
    name = told[0][0]["run_id"]
    assert asked.heartbeat(agent, [name]) == []
    server.world.runs[name].stopped = True
    assert asked.heartbeat(agent, [name]) == [{"type": "stop", "run_id": name}]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 500, "times": 3},
        {"kind": "status", "status": 429, "headers": {"Retry-After": "0"}},
        {"kind": "cut", "times": 2},
    ],
)
def test_a_passing_fault_is_waited_out(asked, server, fault):
    server.fail(**fault)
    assert asked.sweep(PATH)["name"] == "s0000000"


def test_retry_after_is_kept(asked, server):
    server.fail("status", status=429, headers={"Retry-After": "1"})
    begun = time.monotonic()
    asked.sweep(PATH)
    assert time.monotonic() - begun >= 1


@pytest.mark.parametrize(
    ("told", "now", "wait"),
    [
        ("Sat, 01 Jan 2000 00:00:10 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", 10.0),
        ("Sat, 01 Jan 2050 00:00:10 GMT", "Sat, 01 Jan 2050 00:00:00 GMT", 10.0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2000 00:00:10 GMT", 0.0),
        ("Sat, 01 Jan 2000 01:00:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT", ours.MOST),
        ("7", "nonsense", 7.0),
        ("nonsense", "Sat, 01 Jan 2000 00:00:00 GMT", None),
    ],
)
def test_a_date_counts_from_the_servers_own_clock(told, now, wait):
    headers = Message()
    headers["Retry-After"], headers["Date"] = told, now
    assert ours._retry_after(HTTPError("http://server", 503, "busy", headers, None)) == wait


def test_a_server_that_hangs_is_asked_again(asked, server, monkeypatch):
    monkeypatch.setattr(ours, "TIMEOUT", 1.0)
    server.fail("hang", seconds=600.0)
    assert asked.sweep(PATH)["name"] == "s0000000"


def test_a_server_that_dies_comes_back(asked, server):
    agent = asked.register(PATH)
    server.stop()
    with pytest.raises(ScalingError, match="out of reach"):
        asked.heartbeat(agent, [], patience=0.2)
    server.start()
    assert asked.heartbeat(agent, [])


def test_a_bad_key_and_an_unknown_sweep_are_refused_at_once(asked, server):
    with pytest.raises(Refused, match="knows no such sweep"):
        asked.sweep(Path("me", "proj", "nothing"))
    server.key = "another"
    with pytest.raises(Refused, match="401"):
        asked.sweep(PATH)


@pytest.mark.parametrize("text", ["", "a/b/c/d", "me//x"])
def test_a_path_that_is_none(text, monkeypatch):
    monkeypatch.delenv("WANDB_ENTITY", raising=False)
    with pytest.raises(ScalingError, match="ENTITY/PROJECT/ID"):
        Path.of(text)


def test_a_short_path_is_filled_in(monkeypatch):
    monkeypatch.setenv("WANDB_ENTITY", "me")
    monkeypatch.setenv("WANDB_PROJECT", "proj")
    assert Path.of("x") == Path.of("proj/x") == Path.of("me/proj/x") == Path("me", "proj", "x")
