"""Counts of planned runs: kept next to the plan, and made again where what they follow from is another."""

from __future__ import annotations

import json
import subprocess
import sys

from scaling import schema
from scaling.studies import points as module
from scaling.studies.plan import plan
from scaling.studies.points import counts
from scaling.studies.question import read
from scaling.studies.record import enter, entered
from scaling.training.point import point


def _study(folder):
    planned = plan(read("tests/studies/small.yaml"), [f"runs={folder}"])
    ledger = planned.ledger()
    enter(ledger, "small", planned)
    return ledger, entered(ledger, "small")


def test_they_are_those_of_the_assembled_runs_and_need_no_torch(tmp_path):
    ledger, entry = _study(tmp_path)
    assembled = [point(run.experiment) for run in entry.runs]
    for columns, expected in zip(counts(ledger, entry), assembled, strict=True):
        assert list(columns.items()) == list(expected.items())
    code = (
        "import json, sys; from scaling.ledger import Ledger; from scaling.studies.record import entered\n"
        "from scaling.studies.points import counts; ledger = Ledger.open(sys.argv[1])\n"
        "points = counts(ledger, entered(ledger, 'small')); print(json.dumps([points, 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [assembled, False]


def test_they_are_made_again_after_anything_that_they_follow_from(tmp_path, monkeypatch):
    ledger, entry = _study(tmp_path / "runs")
    counted = []
    monkeypatch.setattr(module, "point", lambda experiment: counted.append(1) or point(experiment))

    def again() -> int:
        counted.clear()
        counts(ledger, entry)
        return len(counted)

    assert (again(), again()) == (10, 0)
    for name in ("COUNTING", "PACKAGE"):  # other packages, other code
        with monkeypatch.context() as other:
            other.setattr(module, name, ("torch",) if name == "COUNTING" else tmp_path)
            assert again() == 10
        assert (again(), again()) == (10, 0)
    (tmp_path / "own.py").write_text("")
    with monkeypatch.context() as other:
        other.setattr(schema, "extensions", lambda: [str(tmp_path / "own.py")])
        assert (again(), again()) == (10, 0)
        (tmp_path / "own.py").write_text("# another")
        assert again() == 10
    file = ledger.study_folder("small") / "counts.json"
    assert again() == 10
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1', 1))  # the seal is broken
    assert (again(), again()) == (10, 0)
