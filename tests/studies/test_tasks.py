"""A study whose runs are finetuned on tasks: their scores in points.csv, and the held-out run's score predicted."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage.studies import SCORE
from scaling.cli import main
from scaling.laws import named
from scaling.ledger import Ledger
from scaling.reports import sections
from scaling.studies import findings as found_in
from scaling.studies.findings import find
from scaling.studies.plan import entered
from scaling.studies.question import Question
from scaling.studies.tasks import score_columns

TASKS = Path(__file__).parent / "tasks.yaml"


def scored_rows():
    """Rows of points.csv of a study whose scores of one task follow a two-step law, the last one held out."""
    rng = np.random.default_rng(0)
    C = np.geomspace(1e17, 1e21, 16)
    loss = named("power_law_floor_c").predict(np.array([1.8, 4e4, 0.25]), {"C": C})
    loss = loss * np.exp(0.004 * rng.standard_normal(16))
    chance = named("task_sigmoid").predict(np.array(list(SCORE.values())), {"loss": loss})
    scores = rng.binomial(2000, chance) / 2000
    unmeasured = dict.fromkeys(("other_score", "other_examples", "other_chance"))
    rows = []
    for place in range(16):
        run = {"run": f"{place:016x}", "name": f"run {place}", "status": "finished", "held_out": int(place == 15)}
        mine = (float(scores[place]), 2000, 0.25) if place != 3 else (None, None, None)
        columns = dict(zip(("mine_score", "mine_examples", "mine_chance"), mine, strict=True))
        rows.append({**run, "loss": float(loss[place]), "C": float(C[place]), **columns, **unmeasured})
    return rows


def test_what_guessing_scores_is_known_of_some_metrics():
    for metric, metrics, labels, chance, examples in (
        ("Accuracy", {"accuracy": 0.5}, 4, 0.25, 80),
        ({"kind": "MCC"}, {"mcc": 0.5, "accuracy": 0.7}, 2, 0.0, None),
        ("ExactMatch", {"exact_match": 0.5, "f1": 0.6}, None, None, None),  # of a few answers, or of all words
    ):
        result = {"score": 0.5, "metrics": metrics, "targets": 80}
        assert score_columns(result, metric, labels) == {"_score": 0.5, "_examples": examples, "_chance": chance}


def test_the_score_of_the_held_out_run_is_predicted(tmp_path, monkeypatch):
    monkeypatch.setattr(found_in, "FIGURES", ())
    tasks = {"tasks/mine.yaml": {}, "other": {}}
    asked = Question("mine", "which score?", "decoder", {}, {"seed": [0]}, laws=("power_law_floor_c",), tasks=tasks)
    findings = find(asked, scored_rows(), tmp_path)
    measured, other = findings.tasks
    assert measured.task == "mine"
    assert measured.document["law"] == "power_law_floor_c,task_sigmoid"
    assert measured.document["fixed"] == {"task_b": 0.25}
    assert measured.document["n"] == 14  # one has no score, one is held out
    (point,) = measured.document["held_out"]["points"]
    assert point["covered"] is True
    assert [task["task"] for task in json.loads((tmp_path / "fit.json").read_text())["tasks"]] == ["mine", "other"]
    page = str(sections.task(findings, measured))
    for text in ("14 finetuned runs", "nside its 95% interval", "run 15", f"{point['accuracy']:.4f}"):
        assert text in page, text
    assert other.to_json() == {"task": "other", "law": None, "reason": "other was not measured"}
    assert "other was not measured" in str(sections.task(findings, other))


@pytest.mark.slow
def test_a_study_with_tasks_finetunes_each_run_and_reports_the_scores(tmp_path, capsys):
    runs = tmp_path / "runs"
    command = ["study", str(TASKS), f"runs={runs}", "--workers", "2"]
    assert main(command) == 0
    assert "rank_tags: power_law_floor_c,task_sigmoid, 9 scores" in capsys.readouterr().out
    ledger = Ledger.open(runs)
    finetuned = entered(ledger, "tasks-tasks")
    assert len(finetuned.runs) == 10
    assert all(one.task and ledger.result(one.run) for one in finetuned.runs)
    assert sum(one.held_out for one in finetuned.runs) == 1
    report = runs / "studies" / "tasks" / "report"
    with (report / "points.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert {row["rank_tags_chance"] for row in rows} == {"0.25"}
    (task,) = json.loads((report / "fit.json").read_text())["tasks"]
    assert task["held_out"]["points"][0]["covered"] is True

    # A finetuning that is lost is trained again by the same command, and ends where it ended.
    lost = finetuned.runs[4]
    result = ledger.result(lost.run)
    shutil.rmtree(ledger.folder(lost.run))
    assert main(command) == 0
    again = Ledger.open(runs).result(lost.run)
    assert (again["score"], again["loss"]) == (result["score"], result["loss"])
    assert all(len(Ledger.open(runs).attempts(one.run)) == 1 for one in finetuned.runs)  # nothing is trained twice
