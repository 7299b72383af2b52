"""A study on SLURM, whose commands are played by scripts: arrays, packs, warnings before a job ends, cancelled jobs."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from tests.studies.test_unfinished import lacking, training, write

# Jobs are processes; a file of `jobs` has the process of each, and what it was started by.
SBATCH = """#!{python}
import os, re, subprocess, sys
from pathlib import Path
jobs, script = Path({jobs!r}), Path(sys.argv[1])
number = 100 + len(list(jobs.glob("*.sh")))
copy = jobs / f"{{number}}.sh"
copy.write_text(script.read_text())
array = re.search(r"--array=0-(\\d+)", script.read_text())
for task in range(int(array[1]) + 1) if array else [None]:
    own = dict(SLURM_JOB_ID=f"{{number}}", SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1")
    own |= dict(SLURM_NODEID="0", SLURM_PROCID="0", SLURM_LOCALID="0")
    if array:
        own |= dict(SLURM_ARRAY_JOB_ID=f"{{number}}", SLURM_ARRAY_TASK_ID=f"{{task}}")
    out = open(jobs / "out", "ab")
    process = subprocess.Popen(["bash", copy], env=os.environ | own, stdout=out, stderr=out, start_new_session=True)
    (jobs / (f"{{number}}_{{task}}" if array else f"{{number}}")).write_text(f"{{process.pid}}")
print(f"Submitted batch job {{number}}")
"""
SRUN = """#!{python}
import os, sys
words = sys.argv[1:]
start = next(place for place, word in enumerate(words) if "python" in word)
os.execv(words[start], words[start:])
"""
SACCT = """#!{python}
import os
from pathlib import Path
print("JobID|State|NodeList")
for file in (file for file in Path({jobs!r}).glob("1*") if not file.suffix):
    try:
        os.kill(int(file.read_text()), 0)
        state = "RUNNING"
    except OSError:
        state = "COMPLETED"
    print(f"{{file.name}}|{{state}}|here")
"""
SCANCEL = """#!{python}
import os, sys
from pathlib import Path
os.killpg(int((Path({jobs!r}) / sys.argv[1]).read_text()), 15)
"""
SCONTROL = """#!{python}
import os, subprocess, sys
from pathlib import Path
jobs = Path({jobs!r})
(jobs / "requeued").touch()
copy = jobs / f"{{sys.argv[2].partition('_')[0]}}.sh"
out = open(jobs / "out", "ab")
process = subprocess.Popen(["bash", copy], stdout=out, stderr=out, start_new_session=True)
(jobs / sys.argv[2]).write_text(f"{{process.pid}}")
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder of the jobs that were submitted."""
    jobs, commands = tmp_path / "jobs", tmp_path / "bin"
    jobs.mkdir()
    commands.mkdir()
    for name, text in zip(("sbatch", "srun", "sacct", "scancel", "scontrol"), (SBATCH, SRUN, SACCT, SCANCEL, SCONTROL)):
        (commands / name).write_text(text.format(python=sys.executable, jobs=str(jobs)))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    return jobs


def until(seen):
    end = time.monotonic() + 300
    while not (found := seen()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_runs_are_packed_into_an_array(slurm, tmp_path, capsys):
    words = ["--executor", "slurm", "--set", "partition=gpu", "--workers", "2"]
    file = write(tmp_path, resources={"threads": 1, "gpus": 0.5, "memory": 4, "minutes": 7})
    assert main(["study", str(file), f"runs={tmp_path}", *words]) == 0
    assert lacking(tmp_path) == []
    assert sorted(path.name for path in slurm.glob("*_*")) == ["100_0", "100_1"]
    script = (slurm / "100.sh").read_text()
    for option in ("partition=gpu", "cpus-per-task=1", "gpus-per-node=1", "mem=4GB", "time=14"):
        assert f"#SBATCH --{option}\n" in script


@pytest.mark.slow
def test_a_job_that_slurm_warns_saves_its_run_and_is_queued_again(slurm, tmp_path, capsys):
    file = write(tmp_path, grid={"seed": [0], "trainer.max_steps": [3000]})
    assert main(["submit", str(file), f"runs={tmp_path}", "--set", "timeout_min=60"]) == 0
    assert "submitted 1 run to SLURM" in capsys.readouterr().out
    (run,) = lacking(tmp_path)
    log = tmp_path / "store" / run / "log.jsonl"
    until(lambda: log.exists() and b'"train"' in log.read_bytes())
    (process,) = training(tmp_path)
    os.kill(process, signal.SIGUSR1)
    until(lambda: lacking(tmp_path) == [])
    first, second = Ledger.open(tmp_path).attempts(run)
    assert first.end is not None
    assert first.end["outcome"] == "stopped"
    assert second.end is not None
    assert second.end["outcome"] == "finished"
    assert (slurm / "requeued").exists()


@pytest.mark.slow
def test_jobs_that_no_command_waits_for_are_cancelled(slurm, tmp_path, capsys):
    words = [str(write(tmp_path, grid={"trainer.max_steps": [10**6]})), f"runs={tmp_path}"]
    assert main(["submit", *words]) == 0
    until(lambda: list(training(tmp_path)))
    assert main(["submit", *words, "--stop"]) == 0
    assert "cancelled 1 job of SLURM" in capsys.readouterr().out
    until(lambda: not list(training(tmp_path)))
    (run,) = lacking(tmp_path)
    assert [each.end["outcome"] for each in Ledger.open(tmp_path).attempts(run) if each.end] == ["stopped"]
