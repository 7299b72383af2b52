"""A study on Ray, where it is installed."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from importlib.util import find_spec

import pytest

from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.studies.question import read
from tests.serial import work
from tests.studies.test_unfinished import ended, lacking, scaling, training, until, write

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]


def test_a_run_whose_worker_is_killed_is_trained_by_another(tmp_path):
    file = write(tmp_path, grid={"seed": [0, 1], "trainer.max_steps": [300]})
    process = scaling("study", file, f"runs={tmp_path}", "--executor", "ray", "--workers", "2")
    os.kill(until(lambda: list(training(tmp_path)), process, 300)[0], signal.SIGKILL)
    code, err = ended(process)
    assert (code, lacking(tmp_path)) == (0, []), err
    assert "it is tried again" in err


def test_a_node_that_is_removed_changes_no_bit(tmp_path):
    Cluster = import_module("ray.cluster_utils").Cluster
    file, runs = write(tmp_path, grid={"seed": [0, 1], "trainer.max_steps": [600]}), tmp_path / "runs"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        process = scaling("study", file, f"runs={runs}", "--executor", "ray", "--set", f"address={cluster.address}")
        until(lambda: len(list(training(runs))) == 2, process, 300)
        cluster.remove_node(second, allow_graceful=False)
        code, err = ended(process)
    finally:
        cluster.shutdown()
    assert (code, lacking(runs)) == (0, []), err
    assert err.count("it is tried again") == 1, "one run was on each node"
    expected = plan(read(str(file)), [f"runs={tmp_path / 'whole'}"])
    whole, removed = expected.ledger(), Ledger.open(runs)
    enter(whole, "few", expected)
    work(whole, expected)
    for run in expected.runs:
        assert (whole.result(run.run) or {})["loss"] == (removed.result(run.run) or {})["loss"]


def test_a_signal_saves_the_runs(tmp_path):
    process = scaling(
        "study", write(tmp_path, grid={"trainer.max_steps": [10**6]}), f"runs={tmp_path}", "--executor", "ray"
    )
    until(lambda: any(b'"train"' in log.read_bytes() for log in tmp_path.glob("store/*/log.jsonl")), process, 300)
    process.terminate()
    code, err = ended(process)
    assert code == 143, err
    ledger = Ledger.open(tmp_path)
    assert [record.end["outcome"] for record in ledger.attempts(*ledger.runs()) if record.end] == ["stopped"]
