"""A study that is not done says so: which runs it lacks, why, by which codes its workers ended; and how to go on."""

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaling.ledger import Ledger
from scaling.studies.findings import rows
from scaling.studies.plan import plan
from scaling.studies.question import read
from tests.disk import fill
from tests.serial import work
from tests.training.conftest import SABOTEUR

# A study of runs that take a fraction of a second each.
SET = {
    "data": {"kind": "Synthetic", "symbols": 16, "order": 1, "validation": 512},
    "size": {"layers": 1, "width": 8, "heads": 1, "head_width": 8, "vocabulary": None, "length": 16},
    "train": {"batch": 8, "checkpoint_every": 4},
    "trainer": {"max_steps": 8},
    "schedule": {"warmup": 2},
    "evaluate": {"points": 1, "windows": 32},
    "log": {"wandb": "disabled", "every": 1},
}
STUDY = {"question": "Does it end?", "base": "decoder", "set": SET}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "few.yaml"
    path.write_text(yaml.safe_dump({**STUDY, "grid": {"seed": [0, 1, 2]}, **changes}))
    return path


def scaling(*words: object, **environment: str) -> subprocess.Popen[str]:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, **environment}}
    return subprocess.Popen([sys.executable, "-m", "scaling", *map(str, words)], text=True, **pipes)


def ended(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str]:
    """Its code and what it wrote on standard error."""
    try:
        _, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, err


def training(runs: Path) -> Iterator[int]:
    """The processes that train a run of a ledger now."""
    for lock in runs.glob("store/*/lock"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            yield json.loads(lock.read_text())["pid"]


def until(seen, process: subprocess.Popen[Any] | None = None, seconds: float = 120):
    """What `seen` finds, as soon as it finds something, while the process that could bring it about runs."""
    end = time.monotonic() + seconds
    while not (found := seen()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def lacking(runs: Path) -> list[str]:
    ledger = Ledger.open(runs)
    return [run for run in ledger.runs() if ledger.result(run) is None]


@pytest.fixture
def sabotaged(tmp_path):
    """The words that begin a study one of whose runs has a saboteur."""
    (tmp_path / "saboteur.py").write_text(SABOTEUR)
    channels = ["Saboteur", *({"kind": "Dense", "activation": name} for name in ("ReLU", "GeLU"))]
    study = write(tmp_path, grid={"model.block.channel": channels})
    return ["study", study, f"runs={tmp_path / 'runs'}", "--workers", "2", "--extend", tmp_path / "saboteur.py"]


pytestmark = pytest.mark.slow


def test_failed_runs_are_named_with_their_reason_and_tried_again_when_asked(sabotaged, tmp_path):
    runs, broken = tmp_path / "runs", {"CALL": "1", "FAULT": "raise ValueError('the piece broke')"}
    code, err = ended(scaling(*sabotaged, **broken))
    assert code == 1, err
    (run,) = lacking(runs)
    log = runs / "studies" / "few" / "workers.log"
    assert "2 of 3 runs, 1 failed" in err
    assert "the study few is not done: 1 of 3 runs has no result" in err
    assert f"channel=Saboteur (run {run}): failed: ValueError: the piece broke" in err
    assert f"what the runs printed is in {log}" in err
    assert "Traceback" not in err
    # The traceback is where one looks for it: in the workers' log, and in the attempt.
    records = Ledger.open(runs).attempts(run)
    assert log.read_text().count("ValueError: the piece broke") == len(records) == 2
    assert all(record.end["outcome"] == "failed" for record in records)
    assert all("ValueError: the piece broke" in record.end["traceback"] for record in records)
    # What failed too often is left alone until someone asks.
    code, err = ended(scaling(*sabotaged))
    assert (code, "--retry-failed" in err, len(Ledger.open(runs).attempts(run))) == (1, True, 2)
    code, err = ended(scaling(*sabotaged, "--retry-failed"))
    assert (code, lacking(runs)) == (0, []), err


def test_a_full_disk_ends_a_study_with_74_and_what_it_lacks(small_disk, tmp_path):
    runs = small_disk / "runs"
    process = scaling("study", write(tmp_path, grid={"seed": list(range(8))}), f"runs={runs}", "--workers", "2")
    until(lambda: list(runs.glob("store/*/result.json")), process)
    fill(small_disk, 0)
    code, err = ended(process)
    missing = lacking(runs)
    assert missing
    assert code == 74, err
    assert f"{len(missing)} of 8 runs have no result" in err or "1 of 8 runs has no result" in err
    assert all(run in err for run in missing)
    assert "Traceback" not in err
    (small_disk / "filler").unlink()
    code, err = ended(scaling("study", tmp_path / "few.yaml", f"runs={runs}", "--workers", "2"))
    assert (code, lacking(runs)) == (0, []), err


def test_killed_workers_are_replaced_and_a_run_that_kills_them_is_given_up(sabotaged, tmp_path):
    code, err = ended(scaling(*sabotaged, CALL="1", FAULT="os.kill(os.getpid(), signal.SIGKILL)"))
    assert code == 1, err
    (run,) = lacking(tmp_path / "runs")
    assert "its process was killed by SIGKILL; it is tried again" in err
    assert f"channel=Saboteur (run {run}): its process was killed by SIGKILL; tried 3 times" in err
    assert "Traceback" not in err


def test_a_plain_script_starts_a_study_and_is_not_run_again_by_its_workers(tmp_path):
    script, study = tmp_path / "script.py", str(write(tmp_path))
    script.write_text(f"import scaling\nprint('once')\nscaling.study({study!r}, runs={str(tmp_path)!r})\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr
    assert "once" not in (tmp_path / "studies" / "few" / "workers.log").read_text()
    assert lacking(tmp_path) == []


def test_two_commands_share_a_study_and_end_alike(tmp_path):
    words = ("study", write(tmp_path, grid={"seed": list(range(12))}), f"runs={tmp_path / 'runs'}", "--workers", "1")
    for process in [scaling(*words) for _ in range(2)]:
        code, err = ended(process)
        assert (code, lacking(tmp_path / "runs")) == (0, []), err
    ledger = Ledger.open(tmp_path / "runs")
    assert [len(ledger.attempts(run)) for run in ledger.runs()] == [1] * 12


def test_killed_and_resumed_a_study_ends_in_the_same_points(tmp_path):
    """By a law that nine points bound: open intervals take longer than all the runs."""
    file, chance, runs = tmp_path / "small.yaml", random.Random(6), tmp_path / "runs"
    text = (Path(__file__).parent / "small.yaml").read_text()
    file.write_text(text.replace("law: chinchilla", "law: power_law_floor_d"))
    command = [sys.executable, "-m", "scaling", "study", str(file), f"runs={runs}", "--workers", "2", "--json"]

    def attempts() -> int:
        return sum(log.read_bytes().count(b'{"kind":"start"') for log in runs.glob("store/*/log.jsonl"))

    for _ in range(6):
        before, quiet = attempts(), subprocess.DEVNULL
        process = subprocess.Popen(command, start_new_session=True, stdout=quiet, stderr=quiet)
        while process.poll() is None and attempts() == before:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert (document["law"], document["points"]["used"]) == ("power_law_floor_d", 10)
    found = plan(read(str(file)), [f"runs={tmp_path / 'whole'}"])
    work(ledger := found.ledger(), found)
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows(ledger, found)]
    with (runs / "studies" / "small" / "report" / "points.csv").open(newline="") as lines:
        assert list(csv.DictReader(lines)) == expected
