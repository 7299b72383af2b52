"""Only what can be known of another process is believed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from scaling.ledger.machine import is_gone, signature, this_machine

HERE = this_machine()


def test_this_process_is_here() -> None:
    assert not is_gone(signature(HERE), HERE)


@pytest.mark.parametrize(
    "elsewhere",
    [replace(HERE, boot_id="another"), replace(HERE, process_namespace="pid:[1]"), replace(HERE, boot_id=None)],
)
def test_of_another_machine_nothing_is_known(elsewhere: object) -> None:
    claim = {**signature(HERE), "pid": 2**22 + 1}
    assert is_gone(claim, HERE)
    assert not is_gone(claim, elsewhere)  # type: ignore[arg-type]


def test_a_process_that_has_ended_is_gone_even_before_its_parent_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        claim = {**signature(HERE), "pid": process.pid}
        assert is_gone(claim, HERE), "it started at another time than this one did: the number was used again"
        with open(f"/proc/{process.pid}/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19])
        claim["process_started"] = started
        assert not is_gone(claim, HERE)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(claim, HERE), "a zombie"
    finally:
        process.kill()
        process.communicate()
    assert is_gone(claim, HERE)


@pytest.mark.parametrize("claim", [{}, {"pid": "1"}, {"boot_id": HERE.boot_id}, {**signature(HERE), "pid": None}])
def test_a_claim_that_makes_no_sense_tells_nothing(claim: dict[str, object]) -> None:
    assert not is_gone(claim, HERE)


def test_a_pid_beyond_all_numbers() -> None:
    assert is_gone({**signature(HERE), "pid": 10**30}, HERE)
