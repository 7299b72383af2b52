"""Jobs that are all to be done, and studies on SLURM, whose commands are played by a script, and on Ray."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from scaling.base.errors import DISK, ScalingError
from scaling.executors import End, scheduler
from scaling.executors import ended as job_end
from scaling.executors.local import Local
from scaling.executors.scheduler import Job, finish
from scaling.ledger import Ledger
from scaling.ledger.document import entries
from scaling.ledger.run import LOG
from scaling.studies.plan import plan
from scaling.studies.question import read
from scaling.verbs.command_line import main
from tests.serial import work
from tests.studies.test_unfinished import ended, lacking, scaling, training, until, write

slow = pytest.mark.slow
DIED, DONE = End("died", reason="its process was killed by SIGKILL"), End("done")


def finished(*ends: End, jobs: int = 1) -> None:
    """Finish jobs that end as stated, one try after another."""
    left = list(ends)
    executor: Any = SimpleNamespace(slots=1, log="the log", wait=lambda timeout: None)
    executor.submit = lambda *_, **__: SimpleNamespace(end=left.pop(0))
    finish(executor, [Job(f"part {number}", (print,)) for number in range(jobs)])


def test_a_job_that_died_is_tried_three_times_and_one_that_failed_gives_its_error_and_code(monkeypatch) -> None:
    monkeypatch.setattr(scheduler, "WAIT", 0.0)
    finished(DIED, DIED, DONE)
    with pytest.raises(ScalingError, match="killed by SIGKILL; see the log; the same command goes on"):
        finished(DIED, DIED, DIED, DONE)
    with pytest.raises(ScalingError, match=r"^a\.txt:3: is not JSON$"):
        finished(DONE, End("failed", reason="a.txt:3: is not JSON"), DONE, jobs=2)
    with pytest.raises(ScalingError) as full:
        finished(End("failed", reason="no room", code=DISK), DONE)
    assert full.value.code == DISK


def test_a_job_on_a_full_disk_ends_with_the_code_of_a_full_disk():
    with open("/dev/full", "wb", buffering=0) as file:
        assert job_end("job", file.write, (b"x",)).code == DISK


def test_a_log_that_cannot_be_written_is_refused_before_any_job(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="File exists"):
        Local(1, tmp_path / "file" / "workers.log")


KILLED = """
import os, signal, threading, time
from multiprocessing import forkserver
from scaling.executors.local import Local

executor = Local(1)
server = forkserver._forkserver._forkserver_pid
threading.Timer(0.5, os.kill, (server, signal.SIGKILL)).start()  # it imports
for _ in range(2):
    print(executor.submit("job", abs, -1).wait().status)
    time.sleep(1)
executor.close()
"""


@slow
def test_a_fork_server_that_is_killed_costs_one_try():
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("died\ndone\n", "")


@slow
def test_a_handle_has_a_status_the_log_and_a_way_to_cancel_its_job(tmp_path):
    executor = Local(1, tmp_path / "log")
    try:
        one, two, three = (executor.submit(f"job {number}", time.sleep, number) for number in (60, 0, "x"))
        assert (one.status(), two.status(), two.wait(0)) == ("running", "waiting", None)
        two.cancel()
        one.cancel()
        assert (two.wait(), one.wait().signal) == (End("cancelled"), signal.SIGTERM)
        assert three.wait().status == three.status() == "failed"
        assert "job x: Traceback" in three.logs()
    finally:
        executor.close()


# Jobs are processes; a file of `jobs` has the process of each, and what it was started by.
SLURM = """#!{python}
import os, re, subprocess, sys
from pathlib import Path
jobs, command, words = Path({jobs!r}), Path(sys.argv[0]).name, sys.argv[1:]

def start(script, name, **own):
    out = open(jobs / "out", "ab")
    how = dict(env=os.environ | own, stdout=out, stderr=out, start_new_session=True)
    (jobs / name).write_text(str(subprocess.Popen(["bash", script], **how).pid))

def state(file):
    try:
        os.kill(int(file.read_text()), 0)
        return "RUNNING"
    except OSError:
        return "COMPLETED"

if command == "sbatch":
    text, number = Path(words[0]).read_text(), str(100 + len(list(jobs.glob("*.sh"))))
    (copy := jobs / (number + ".sh")).write_text(text)
    own = dict(SLURM_JOB_ID=number, SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    own |= dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0")
    if array := re.search(r"--array=0-(\\d+)", text):
        for task in map(str, range(int(array[1]) + 1)):
            start(copy, number + "_" + task, **own, SLURM_ARRAY_JOB_ID=number, SLURM_ARRAY_TASK_ID=task)
    else:
        start(copy, number, **own)
    print("Submitted batch job", number)
elif command == "srun":
    first = next(place for place, word in enumerate(words) if "python" in word)
    os.execv(words[first], words[first:])
elif command == "sacct":
    print("JobID|State|NodeList")
    for file in (file for file in jobs.glob("1*") if not file.suffix):
        print(file.name + "|" + state(file) + "|here")
elif command == "scancel":
    os.killpg(int((jobs / words[0]).read_text()), 15)
else:
    (jobs / "requeued").touch()
    start(jobs / (words[1].partition("_")[0] + ".sh"), words[1])
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder of the jobs that were submitted."""
    jobs, commands = tmp_path / "jobs", tmp_path / "bin"
    for folder in (jobs, commands):
        folder.mkdir()
    for name in ("sbatch", "srun", "sacct", "scancel", "scontrol"):
        (commands / name).write_text(SLURM.format(python=sys.executable, jobs=str(jobs)))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return jobs


@slow
def test_runs_are_packed_into_an_array(slurm, tmp_path):
    words = ["--executor", "slurm", "--set", "partition=gpu", "--workers", "2"]
    file = write(tmp_path, resources={"threads": 1, "gpus": 0.5, "memory": 4, "minutes": 7})
    assert main(["study", str(file), f"runs={tmp_path}", *words]) == 0
    assert lacking(tmp_path) == []
    assert sorted(path.name for path in slurm.glob("*_*")) == ["100_0", "100_1"]
    script = (slurm / "100.sh").read_text()
    for option in ("partition=gpu", "cpus-per-task=1", "gpus-per-node=1", "mem=4GB", "time=14"):
        assert f"#SBATCH --{option}\n" in script


@slow
def test_a_job_that_slurm_warns_is_queued_again_and_one_that_no_command_waits_for_is_cancelled(slurm, tmp_path, capsys):
    words = [str(write(tmp_path, grid={"trainer.max_steps": [10**6]})), f"runs={tmp_path}"]
    assert main(["submit", *words, "--set", "timeout_min=60"]) == 0
    assert "submitted 1 run to SLURM" in capsys.readouterr().out
    until(lambda: any(b'"train"' in log.read_bytes() for log in tmp_path.glob("store/*/log.jsonl")), seconds=300)
    (process,) = training(tmp_path)
    os.kill(process, signal.SIGUSR1)
    until(lambda: list(training(tmp_path)) not in ([], [process]), seconds=300)
    assert (slurm / "requeued").exists()
    assert main(["submit", *words, "--stop"]) == 0
    assert "cancelled 1 job of SLURM" in capsys.readouterr().out
    until(lambda: not list(training(tmp_path)), seconds=300)
    ledger = Ledger.open(tmp_path)
    (run,) = ledger.runs()
    assert [record.end["outcome"] for record in ledger.attempts(run)] == ["stopped", "stopped"]
    resumed = entries(ledger.folder(run) / LOG, ["resume"])
    assert [entry["from_step"] is None for entry in resumed] == [True, False]


@slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
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
    work(whole := expected.ledger(), expected)
    for run in whole.runs():
        assert whole.result(run)["loss"] == Ledger.open(runs).result(run)["loss"]
