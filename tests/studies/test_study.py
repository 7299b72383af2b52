"""A study in this process: trunks, progress, predictions, extensions, scores of finetuned runs, and decisions."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from benchmarks.coverage.studies import SCORE
from scaling.base.errors import ScalingError
from scaling.executors import scheduler
from scaling.laws import named
from scaling.laws.next_run import parse_goal
from scaling.ledger import Ledger
from scaling.ledger import document as documents
from scaling.ledger.document import entries, seal, stamp
from scaling.ledger.space import free, waste
from scaling.reports import sections
from scaling.reports.provenance import chosen
from scaling.studies import adaptive, estimate
from scaling.studies import findings as found_in
from scaling.studies.adaptive import Decider, Field, decide, decider, decisions, restricted
from scaling.studies.findings import find
from scaling.studies.machine import Size
from scaling.studies.plan import Plan, enter, entered, plan
from scaling.studies.predictions import calibration, register, registered
from scaling.studies.progress import Progress, progress_of
from scaling.studies.question import Question, read
from scaling.studies.scheduler import Runs, grow, train
from scaling.studies.tasks import score_columns, task_plan
from scaling.training.run import train_run
from scaling.verbs.command_line import main
from tests.command_line import printed, refused, refuses
from tests.serial import Serial, work
from tests.studies.test_unfinished import SET, lacking, write

SMALL = str(Path(__file__).parent / "small.yaml")


def begun(asked: Question, runs: Path) -> tuple[Ledger, Plan]:
    found = plan(asked, [f"runs={runs}"])
    enter(ledger := found.ledger(), found)
    return ledger, found


def test_progress_counts_what_is_done_and_a_study_that_is_done_starts_nobody(tmp_path):
    ledger, found = begun(read(SMALL), tmp_path)
    heard = list[str]()
    assert progress_of(ledger, found) == Progress(10, 0, 0.0, trunks=3)
    branch: Any = next(one for one in found.runs if one.trunk)
    grow(ledger, branch, found.trunks[branch.trunk.run])
    now = progress_of(ledger, found)
    assert (now.trunks, now.settled, 0 < now.share < 0.5) == (2, 0, True)
    for one in found.runs:
        finish(ledger, one.run, 1.0)
    train(ledger, found, heard.append, executor="slurm")
    assert progress_of(ledger, found) == Progress(10, 10, 1.0)
    assert heard == ["10 of 10 runs, 100% of the compute"]


def test_a_planned_run_is_trained_alone_by_its_id(tmp_path, capsys):
    ledger, found = begun(read(SMALL), tmp_path)
    run, words = found.runs[0], ["train", "study=small", f"runs={tmp_path}", "log.wandb=disabled"]
    assert main([*words, f"run={run.run}"]) == 0
    assert ledger.result(run.run)["circumstances"]["from_step"] == run.trunk.step
    for more, what in ((["run=abc"], "the study has no such run"), ([f"run={run.run}", "seed=7"], "the plan sets")):
        assert what in refused(capsys, *words, *more)


def test_a_study_is_trained_fitted_and_reported_and_no_run_is_trained_again(tmp_path, capsys, monkeypatch):
    """By a law that nine points bound: open intervals take longer than all the runs."""
    monkeypatch.setattr(
        found_in, "draw", lambda *_: None
    )  # their files take as long as all the rest; the page draws them too
    file, runs = tmp_path / "small.yaml", tmp_path / "runs"
    file.write_text(Path(SMALL).read_text().replace("law: chinchilla", "law: power_law_floor_d"))
    for look in ("trained", "again"):
        assert main(["study", str(file), f"runs={runs}", "--workers", "1"]) == 0, look
        out, err = capsys.readouterr()
        for part in ("power_law_floor_d  L(x) = E", "study small: 9 points", "held out", "report: "):
            assert part in out, look
        assert "10 of 10 runs, 100% of the compute" in err
    page = runs / "studies" / "small" / "report" / "index.html"
    points = pandas.read_csv(page.with_name("points.csv"))
    assert (list(points["status"]), points["held_out"].sum()) == (["finished"] * 10, 1)
    assert all(name in page.read_text() for name in points["run"])
    ledger = Ledger.open(runs)
    assert [len(ledger.attempts(run)) for run in points["run"]] == [1] * 10


def few(folder: Path, **changes: object) -> tuple[Ledger, Plan]:
    return begun(read(str(write(folder, **changes))), folder / "runs")


def test_troubles_that_are_not_the_runs_own_end_the_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scheduler, "WAIT", 0.05)
    ledger, found = few(tmp_path, grid={"seed": list(range(12))})
    tries = []

    def fails(experiment, *_):
        tries.append(experiment.seed)
        raise RuntimeError("no such network interface")

    monkeypatch.setattr("scaling.training.run.train_run", fails)
    assert str(work(ledger, found)).count("no such network interface") == len(tries) == scheduler.IN_A_ROW
    assert "no such network interface" in capsys.readouterr().err


def test_a_damaged_plan_blocks_no_other_study_and_leaves_no_attempt(tmp_path, caplog):
    ledger, found = few(tmp_path)
    for name, content in (("other", b'{"torn'), ("strange", seal({"runs": 5}))):
        ledger.study_folder(name).mkdir()
        (ledger.study_folder(name) / "plan.json").write_bytes(content)
    work(ledger, found)
    assert [len(ledger.attempts(one.run)) for one in found.runs if ledger.result(one.run)] == [1, 1, 1]
    assert "study other" in caplog.text


def test_a_plan_that_grows_takes_its_trunk_further(tmp_path, monkeypatch):
    """As an adaptive study does, which decides for a longer branch of a trunk once the shorter one is done."""
    settings = {**SET, "schedule": {"kind": "WSD", "warmup": 2, "decay": 0.25}}
    ledger, whole = few(tmp_path, set=settings, grid={"trainer.max_steps": [8, 24]})
    short, (trunk,) = min(whole.runs, key=lambda run: run.flops), whole.trunks
    first = replace(whole, runs=(short,))

    def look() -> float:
        assert len(ledger.attempts(trunk)) < 5
        return 0.0

    runs = Runs(Serial(), ledger, Size(1), first, decided=lambda: whole if ledger.result(short.run) else first)
    monkeypatch.setattr(runs, "look", look)
    runs.work()
    assert (lacking(ledger.root), len(ledger.attempts(trunk))) == ([trunk], 2)


INTERVAL = {"estimate": 2.5, "low": 2.4, "high": 2.6, "level": 0.95, "method": "profile"}
DOCUMENT = {"law": "chinchilla", "formula": "L = E", "estimates": {"E": 2.0}, "row": {"N": 1e6, "D": 1e7}}
DOCUMENT |= {"predicted": 2.5, "level": 0.95, "interval_mean": INTERVAL, "interval_run": INTERVAL, "version": "1"}
DOCUMENT |= {"points": {"source": "points.csv", "fitted": 9, "sha256": "0" * 64}}


@pytest.fixture
def ledger(tmp_path):
    """A ledger of three runs that have not begun."""
    ledger = Ledger.create(tmp_path / "runs")
    for seed in range(3):
        ledger.add({"model": {"kind": "Chain"}, "seed": seed})
    return ledger


def finish(ledger, run, loss, outcome="finished"):
    with ledger.claim(run) as attempt:
        attempt.finish(outcome, {"loss": loss, "step": 1, "tokens": 8, "circumstances": {}})


def test_a_prediction_is_scored_when_its_run_has_ended_and_refused_once_it_has_begun(ledger):
    runs = ledger.runs()
    for run in runs:
        assert register(ledger, run, DOCUMENT)[1]
        assert not register(ledger, run, DOCUMENT)[1]  # the same prediction made twice is one
    assert [entry["standing"] for entry in registered(ledger)] == ["waiting"] * 3
    finish(ledger, runs[0], 2.55)
    finish(ledger, runs[1], 2.8)
    finish(ledger, runs[2], None, "diverged")
    found = {entry["run"]: (entry["standing"], entry["covered"]) for entry in registered(ledger)}
    assert [found[run] for run in runs] == [("scored", True), ("scored", False), ("no loss", None)]
    assert min(entry["relative_error"] or 0 for entry in registered(ledger)) == pytest.approx(2.5 / 2.8 - 1)
    record = calibration(registered(ledger))
    assert record["levels"] == [{"level": 0.95, "scored": 2, "inside": 1, "covered": 0.5}]
    assert record["mean_absolute_relative_error"] == pytest.approx(((1 - 2.5 / 2.55) + (1 - 2.5 / 2.8)) / 2)
    refuses("is done, so its loss is known", register, ledger, runs[0], {**DOCUMENT, "predicted": 2.55})
    begun = ledger.add({"model": {"kind": "Chain"}, "seed": 9})
    with ledger.claim(begun) as attempt:
        refuses("has begun", register, ledger, begun, DOCUMENT)
        attempt.end("stopped", "enough")
    assert len(registered(ledger)) == 3


def test_a_prediction_that_was_rewritten_under_its_name_is_altered_and_counts_as_none(ledger):
    runs = ledger.runs()
    path, _ = register(ledger, runs[0], DOCUMENT)
    kept, _ = register(ledger, runs[1], DOCUMENT)
    path.write_bytes(seal({**(documents.read(path) or {}), "predicted": 2.55}))
    shutil.copy(kept, other := kept.with_name(f"{runs[2]}-{kept.name.partition('-')[2]}"))  # of another run
    refuses("is altered; delete the file and predict again", register, ledger, runs[0], {**DOCUMENT})
    finish(ledger, runs[0], 2.55)
    standings = {f"{entry['prediction']}.json": entry["standing"] for entry in registered(ledger)}
    assert standings == {path.name: "altered", kept.name: "waiting", other.name: "altered"}
    record = calibration(registered(ledger))
    assert (record["predictions"], record["scored"], record["altered"]) == (1, 0, [path.name, other.name])
    # One that was added by hand later counts as late.
    finish(ledger, runs[1], 2.5)
    log = ledger.folder(runs[1]) / "log.jsonl"
    log.write_bytes(b"".join(stamp({**entry, "time": "2001-01-01T00:00:00+00:00"}) for entry in entries(log)))
    assert {entry["standing"] for entry in registered(Ledger.open(ledger.root))} == {"altered", "late"}


NARROW, WIDE = {"width": 8, "heads": 1}, {"width": 16, "heads": 2}
GRID = {"size": [NARROW], "train.tokens": ["2k", "4k"]}


def question(**changes) -> Question:
    return replace(read(SMALL), **{"grid": GRID, "held_out": {}, "laws": (), **changes})


def test_a_study_is_extended_by_budgets_sizes_held_out_runs_and_grids(tmp_path):
    longer = {**GRID, "train.tokens": ["2k", "4k", "8k"]}
    larger = {**longer, "size": [NARROW, WIDE]}
    held_out = {"held_out": {"size": [WIDE], "train.tokens": ["16k"]}}
    several = [larger, {"kind": "TokensPerParameter", "multiples": [20], "axes": {"size": [WIDE]}}]
    ledger, _ = begun(question(), tmp_path)
    first = (tmp_path / "studies" / "small" / "plan.json").read_bytes()
    for grid, more, count in ((longer, {}, 1), (larger, {}, 3), (larger, held_out, 1), (several, held_out, 1)):
        before = set(ledger.runs_of("small"))
        ledger, _ = begun(question(grid=grid, **more), tmp_path)
        assert set(ledger.runs_of("small")) > before
        assert len(ledger.runs_of("small")) == len(before) + count
    assert {one.run for one in entered(Ledger.open(tmp_path), "small").runs} == set(ledger.runs_of("small"))
    assert (tmp_path / "studies" / "small" / "plan.json").read_bytes() == first
    refuses(r"1 run is gone \(width=16 heads=2 tokens=", begun, question(grid=larger, **held_out), tmp_path)
    for decays in ([0.0], [0.0, 0.1]):  # an axis of one value
        ledger, _ = begun(question(name="decay", grid={**GRID, "optimizer.weight_decay": decays}), tmp_path)
    assert len(ledger.runs_of("decay")) == 4


def test_another_question_under_the_same_name_is_refused(tmp_path):
    ledger, _ = begun(question(), tmp_path)
    before = ledger.plan_file("small").read_bytes(), ledger.runs()
    for changes, line in (
        ({"set": {**question().set, "data.symbols": 32}}, r"2 runs are new .*2 runs are gone .*data.symbols"),
        ({"grid": {**GRID, "train.tokens": ["2k"]}}, r"1 run is gone \(width=8 heads=1 tokens=4k\)"),
        ({"laws": ("kaplan_d",), "grid": {**GRID, "train.tokens": ["2k", "4k", "8k"]}}, r"laws was"),
    ):
        refusal = refuses(line, begun, question(**changes), tmp_path)
        assert "another name" in str(refusal)
    assert (ledger.plan_file("small").read_bytes(), ledger.runs()) == before


def test_only_new_runs_are_trained_from_shared_trunks_and_land_where_whole_runs_land(tmp_path):
    for budgets in (["2k", "4k"], ["1k", "2k", "4k"], ["1k", "2k", "4k", "6k"]):
        ledger, _ = begun(question(grid={**GRID, "train.tokens": budgets}), tmp_path / "runs")
        work(ledger, entered(ledger, "small"))
    by_budget = {one.name.partition("tokens=")[2]: one for one in entered(ledger, "small").runs}
    assert all(len(ledger.attempts(one.run)) == 1 for one in by_budget.values())
    results = {budget: ledger.result(one.run) for budget, one in by_budget.items()}
    short, middle, long, longest = (results[name]["circumstances"]["from_step"] for name in ("1k", "2k", "4k", "6k"))
    # A budget below the steps that the trunk kept is trained whole; a longer one takes the trunk further.
    assert short == 0 < middle < long < longest
    whole = train_run(by_budget["4k"].experiment, Ledger.create(tmp_path / "alone"))
    assert whole["circumstances"]["from_step"] == 0
    assert whole["loss"] == results["4k"]["loss"]


def scored_rows():
    """Rows of points.csv of a study whose scores of one task follow a two-step law, the last one held out."""
    rng, C = np.random.default_rng(0), np.geomspace(1e17, 1e21, 16)
    loss = named("power_law_floor_c").predict(np.array([1.8, 4e4, 0.25]), {"C": C})
    loss = loss * np.exp(0.004 * rng.standard_normal(16))
    scores = rng.binomial(2000, named("task_sigmoid").predict(np.array(list(SCORE.values())), {"loss": loss})) / 2000
    unmeasured, rows = dict.fromkeys(("other_score", "other_examples", "other_chance")), []
    for place in range(16):
        run = {"run": f"{place:016x}", "name": f"run {place}", "status": "finished", "held_out": int(place == 15)}
        mine = {"mine_score": float(scores[place]), "mine_examples": 2000, "mine_chance": 0.25}
        mine = mine if place != 3 else dict.fromkeys(mine)
        rows.append({**run, "loss": float(loss[place]), "C": float(C[place]), **mine, **unmeasured})
    rows[0]["entropy"] = 1.8  # of one run alone
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
    monkeypatch.setattr(found_in, "draw", lambda *_: None)
    tasks = {"tasks/mine.yaml": {}, "other": {}}
    asked = Question("mine", "which score?", "decoder", {}, {"seed": [0]}, laws=("power_law_floor_c",), tasks=tasks)
    findings = find(asked, scored_rows(), tmp_path)
    measured, other = findings.tasks
    assert (measured["task"], measured["law"]) == ("mine", "power_law_floor_c,task_sigmoid")
    assert (measured["fixed"], measured["n"]) == ({"task_b": 0.25}, 14)  # one has no score, one is held out
    (point,) = measured["held_out"]["points"]
    assert point["covered"] is True
    assert findings.fit is not None
    assert "entropy" not in findings.document
    assert [task["task"] for task in json.loads((tmp_path / "fit.json").read_text())["tasks"]] == ["mine", "other"]
    page = str(sections.task(findings, measured))
    for text in ("14 finetuned runs", "he run lies inside the 95% interval", "run 15", f"{point['accuracy']:.4f}"):
        assert text in page, text
    assert other == {"task": "other", "law": None, "reason": "other was not measured"}
    assert "other was not measured" in str(sections.task(findings, other))


@pytest.mark.slow
def test_a_study_with_tasks_finetunes_each_run_once_and_reports_the_scores(tmp_path, capsys):
    command = ["study", Path(__file__).parent / "tasks.yaml", f"runs={tmp_path}", "--workers", "2"]
    printed(capsys, *command)
    ledger, report = Ledger.open(tmp_path), tmp_path / "studies" / "tasks" / "report"
    finetuned = entered(ledger, "tasks-tasks").runs
    assert [one.held_out for one in finetuned if one.task and ledger.result(one.run)].count(False) == 9
    assert set(pandas.read_csv(report / "points.csv")["rank_tags_chance"]) == {0.25}
    (task,) = json.loads((report / "fit.json").read_text())["tasks"]
    assert task["held_out"]["points"][0]["covered"] is True
    # A finetuning that is lost is trained again by the same command, and ends where it ended.
    result = ledger.result(finetuned[4].run)
    shutil.rmtree(ledger.folder(finetuned[4].run))
    assert "rank_tags: power_law_floor_c,task_sigmoid, 9 scores" in printed(capsys, *command)
    ledger = Ledger.open(tmp_path)
    assert ledger.result(finetuned[4].run)["score"] == result["score"]
    assert all(len(ledger.attempts(one.run)) == 1 for one in finetuned)  # nothing is trained twice


def test_finetunings_on_other_tasks_stay_and_need_no_weights_when_they_are_done(tmp_path):
    ledger, found = few(tmp_path, grid={"seed": [0]})
    work(ledger, found)
    short = {"trainer.max_steps": 6, "data.examples": 64, "data.held_out": 64, "evaluate.points": 1}
    for task in ("rank_tags", "which_language"):
        asked = replace(found, question=replace(found.question, tasks={task: short}))
        finetuned: Any = task_plan(ledger, asked)
        work(ledger, finetuned)
    outcomes = {one.task: ledger.result(one.run)["outcome"] for one in finetuned.runs}
    assert outcomes == {"rank_tags": "finished", "which_language": "finished"}
    free(waste(ledger, weights=True)[0])
    again: Any = task_plan(ledger, asked)
    assert (again.runs, enter(ledger, again)) == (finetuned.runs, [])


TRUTH = {"E": 1.9, "A": 20.0, "alpha": 0.5, "B": 400.0, "beta": 0.8}


def field(folder: Path, goal: str = "E ± 0.12", study: str = SMALL) -> Field:
    return decider(study, None, [f"runs={folder}"], parse_goal(goal), None, 1, ()).field


def decided(ledger: Ledger, name: str) -> list[dict]:
    return [{key: value for key, value in each.items() if key != "decided"} for each in decisions(ledger, name)]


class Pretended(Decider):
    """Runs that are `ended` have the losses of a law, with a little noise; nothing is trained."""

    ended: set[str]

    def _loss(self, row):
        N, D = (float(self.field.rows[row][name]) for name in ("N", "D"))
        loss = TRUTH["E"] + TRUTH["A"] * N ** -TRUTH["alpha"] + TRUTH["B"] * D ** -TRUTH["beta"]
        loss *= np.exp(0.002 * np.random.default_rng(row).standard_normal())
        return float(loss) if self.field.runs[row].run in self.ended else None


def worked(candidates: Field, workers: int = 1, order=min, kills=False, budget=None, ended=()) -> Decider:
    """A study to its conclusion; `order` picks which of the runs that go on ends first."""
    ledger, budget, study = candidates.plan.ledger(), budget or candidates.grid_cost, None
    done = set(ended)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "settled", lambda ledger, run: run in done)
        for _ in range(80):
            if study is None or kills:
                study = Pretended(ledger, candidates, budget, workers)
                study.ended = done
            now = study()
            if "concluded" in decisions(ledger, study.name)[-1]:
                return study
            done.add(order(run.run for run in now.runs if run.run not in done))
    raise AssertionError("no end")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return worked(field(tmp_path_factory.mktemp("whole")))


def test_it_stops_once_two_looks_are_narrow_and_then_has_the_held_out_run(whole):
    *made, last = decisions(whole.ledger, whole.name)
    assert last["concluded"] == "reached"
    widths = [one["half_width"] or np.inf for one in (*made, last)]
    assert max(widths[-2:]) <= 0.12
    assert all(max(pair) > 0.12 for pair in pairwise(widths[:-1]))
    assert 0.6 * whole.field.grid_cost > last["spent"] == pytest.approx(sum(one["flops"] for one in made))
    planned = entered(whole.ledger, whole.name)
    assert {run.run for run in planned.runs if not run.held_out} == {one["run"] for one in made}
    assert sum(run.held_out for run in planned.runs) == 1
    assert planned.command == ("study", "small.yaml", "--adaptive", "E ± 0.12")
    blocks: list[Any] = chosen([*made, last])  # of the page
    assert blocks[0].endswith("the last two looks were narrow enough.")
    assert len(blocks[1].rows) == len(made) + 1


def test_a_decision_does_not_depend_on_which_worker_is_faster_or_on_kills(tmp_path):
    slow, killed = (
        decided(study.ledger, study.name)
        for order, kills in ((min, False), (max, True))
        for study in [worked(field(tmp_path / order.__name__, "E ± 0.2"), 2, order, kills)]
    )
    assert slow == killed
    assert all(len(one["pending"]) == 1 for one in slow[1:-1])


def test_a_kill_between_a_decision_and_its_run_changes_nothing(tmp_path, whole):
    """The decision is on record, and no plan has its run; or the held-out run is planned, and nothing concluded."""
    expected, candidates = decided(whole.ledger, whole.name), field(tmp_path)
    ledger = candidates.plan.ledger()
    for count, document in enumerate(expected[:-2], start=1):
        decide(ledger, whole.name, count, {**document, "decided": "then"})
    again = worked(candidates)
    assert decided(ledger, again.name) == expected
    (ledger.study_folder(again.name) / "decisions" / f"{len(expected):04d}.json").unlink()
    worked(candidates, ended=[one["run"] for one in expected[:-1]])
    assert decided(ledger, again.name) == expected


def test_candidates_may_differ_in_any_axis_of_the_grid(tmp_path):
    """The first run that was entered has one value of it, as all planned runs then."""
    file = tmp_path / "small.yaml"
    file.write_text(Path(SMALL).read_text().replace("grid:\n", "grid:\n  optimizer.weight_decay: [0.0, 0.1]\n"))
    candidates = field(tmp_path / "runs", "E ± 0.3", str(file)).plan
    first, last = candidates.runs[0], candidates.runs[-2]  # the last is held out
    assert "optimizer.weight_decay=0.1" in last.overrides
    ledger = candidates.ledger()
    enter(ledger, restricted(candidates, {first.run}))
    assert enter(ledger, restricted(candidates, {first.run, last.run})) == [last.name]


def test_two_commands_extend_a_study_alike_and_another_extension_is_refused(tmp_path):
    ledger, _ = begun(question(), tmp_path)
    path = ledger.plan_file("small")
    begun(question(grid={**GRID, "train.tokens": ["2k", "4k", "8k"]}), tmp_path)
    document = ledger.plan("small")
    ledger.save_plan("small", document, path)  # of a command that read the plan at the same time
    with pytest.raises(ScalingError, match="another command extended the study at the same time"):
        ledger.save_plan("small", {**document, "runs": document["runs"][:1]}, path)


def test_the_budget_ends_it_too(tmp_path):
    candidates = field(tmp_path, "E ± 0.0001")
    study = worked(candidates, budget=0.3 * candidates.grid_cost)
    last = decisions(study.ledger, study.name)[-1]
    assert last["concluded"] == "budget"
    assert last["spent"] <= 0.3 * candidates.grid_cost


def test_a_goal_that_cannot_be_read_or_reached_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    file = tmp_path / "known.yaml"
    supposed = ", ".join(f"{name}: {value}" for name, value in TRUTH.items())
    file.write_text(f"{Path(SMALL).read_text()}suppose: {{{supposed}, noise: 0.002}}\n")
    for goal, *parts in (
        ("E", "expected a quantity"),
        ("Q ± 0.1", "chinchilla has no parameter 'Q'"),
        ("loss of b - a at N=1M D=2M ± 0.1", "compares no rows"),
        ("E ± 1e-5", "E ± 1e-5 is out of reach: all 27 candidates", "FLOPs, give ± 0.0"),
    ):
        error = refused(capsys, "study", file, "--adaptive", goal, f"runs={tmp_path}")
        assert all(part in error for part in parts)


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_with_the_same_decisions(tmp_path):
    name = "small-adaptive-E-0.3-budget-2e-08"
    command = [sys.executable, "-m", "scaling", "study", SMALL, "--adaptive", "E ± 0.3", "--budget", "2e8"]
    command += ["--workers", "1"]
    folder = tmp_path / "killed"
    for decided_by_then in (2, 4):
        process = subprocess.Popen([*command, f"runs={folder}"], stderr=subprocess.DEVNULL, start_new_session=True)
        while len(list(folder.glob(f"studies/{name}/decisions/*.json"))) < decided_by_then and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for runs in (folder, tmp_path / "whole"):
        subprocess.run([*command, f"runs={runs}"], capture_output=True, check=True)
    assert decided(Ledger.open(tmp_path / "whole"), name) == decided(Ledger.open(folder), name)
    assert "The decisions" in (folder / "studies" / name / "report" / "index.html").read_text()
