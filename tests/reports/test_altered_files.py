"""Files of a study that were shortened, altered or copied in: they change no answer, or are refused by one line."""

from __future__ import annotations

import shutil

import pytest

from scaling.cli import main
from scaling.ledger.document import read, seal
from scaling.studies.decisions import decide, decisions
from scaling.studies.predictions import register
from tests.studies.test_predictions import DOCUMENT

NO_LAW = {"law: chinchilla": ""}


@pytest.mark.parametrize("point", [None, [], "N", {"N": 1}])
def test_a_plan_whose_counts_were_altered_is_refused(point, made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path, NO_LAW)
    file = ledger.plan_file("small")
    plan = read(file)
    assert plan is not None
    plan["runs"][0]["point"] = point
    file.write_text(file.read_text().replace('"N":', '"M":', 1) if point == {"N": 1} else seal(plan).decode())
    assert "the plan is damaged" in refused(capsys, "report", "small", f"runs={ledger.root}")


def report(ledger, capsys) -> str:
    """The points of the study, reported anew."""
    capsys.readouterr()
    assert main(["report", "small", f"runs={ledger.root}"]) == 0
    return (ledger.study_folder("small") / "report" / "points.csv").read_text()


def refused(capsys, *words: str) -> str:
    """The one line by which a command refuses."""
    capsys.readouterr()
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = (line for line in err.splitlines() if ": " in line.removeprefix("scaling: "))
    return line


def test_a_result_that_was_copied_from_another_run_is_none(made_study, tmp_path, capsys):
    ledger, planned = made_study(tmp_path, NO_LAW)
    one, other = (ledger.folder(run.run) / "result.json" for run in planned.runs[:2])
    shutil.copy(other, one)
    lines = report(ledger, capsys).splitlines()
    assert [line.split(",")[2] for line in lines[1:3]] == ["missing", "finished"]


def test_a_spec_that_was_copied_from_another_run_is_none(made_study, tmp_path, capsys):
    ledger, planned = made_study(tmp_path, NO_LAW)
    one, other = (ledger.folder(run.run) / "spec.json" for run in planned.runs[:2])
    shutil.copy(other, one)
    assert "the run has no spec that can be read" in refused(capsys, "report", "small", f"runs={ledger.root}")


def test_a_plan_that_was_copied_from_another_study_is_refused(made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path, NO_LAW)
    shutil.copytree(ledger.study_folder("small"), ledger.study_folder("other"))
    line = refused(capsys, "report", "other", f"runs={ledger.root}")
    assert "other/plan.json: study='other': the plan is of the study small" in line


def test_a_decision_that_is_missing_among_others_is_refused(made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path, NO_LAW)
    folder = ledger.study_folder("small") / "decisions"
    for number in (1, 2, 3):
        decide(ledger, "small", number, {"goal": "E ± 0.1", "budget": 1.0, "run": "0" * 16})
    assert len(decisions(ledger, "small")) == 3
    (folder / "0002.json").unlink()
    line = refused(capsys, "report", "small", f"runs={ledger.root}")
    assert "0002.json: the decision is missing, and later ones are here" in line


def test_a_report_without_a_law_leaves_no_fit_of_earlier_points(made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path, NO_LAW)
    report(ledger, capsys)
    fit = ledger.study_folder("small") / "report" / "fit.json"
    fit.write_text("{}")
    report(ledger, capsys)
    assert not fit.exists()


@pytest.mark.parametrize("content", ["{", '{"law": "chinchilla", "question": "Another?", "not_identified": []}'])
def test_a_plan_takes_no_fit_that_is_cut_off_or_of_another_study(content, made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path)
    fit = ledger.study_folder("small") / "report" / "fit.json"
    fit.parent.mkdir()
    fit.write_text(content)
    words = ["plan", str(tmp_path / "small.yaml"), f"runs={ledger.root}"]
    if content == "{":
        assert "fit.json: not JSON: " in refused(capsys, *words)
    else:
        assert main(words) == 0


@pytest.fixture(scope="module")
def kept(made_study, tmp_path_factory):
    """A kept report."""
    folder = tmp_path_factory.mktemp("kept")
    ledger, _ = made_study(folder, NO_LAW)
    assert main(["report", "small", f"runs={ledger.root}", "--keep", str(folder)]) == 0
    return folder / "small"


def _without_line(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:3] + lines[4:])


KEPT = {
    "a run is missing": _without_line,
    "a line is cut off": lambda text: text[: text.rindex(",") - 40],
    "a loss is another": lambda text: text.replace(",2.", ",1.", 1),
    "a run is another": lambda text: text.replace(text.splitlines()[2][:16], "0" * 16),
}


@pytest.mark.parametrize("name", KEPT)
def test_points_that_are_not_those_of_their_kept_page_are_refused(name, kept, tmp_path, capsys):
    folder = shutil.copytree(kept, tmp_path / "small")
    points, page = folder / "points.csv", (folder / "index.html").read_text()
    points.write_text(KEPT[name](points.read_text()))
    line = refused(capsys, "report", str(folder))
    assert f"{points}: these are not the points of the kept report" in line
    assert (folder / "index.html").read_text() == page


@pytest.mark.parametrize("text", ["{", "[]", '{"points": ""}'])
def test_a_record_that_was_altered_is_refused(text, kept, tmp_path, capsys):
    folder = shutil.copytree(kept, tmp_path / "small")
    (folder / "record.json").write_text(text)
    assert f"{folder / 'record.json'}: the record is damaged" in refused(capsys, "report", str(folder))


def test_a_report_names_a_prediction_that_was_altered_and_does_not_count_it(made_study, tmp_path, capsys):
    ledger, planned = made_study(tmp_path, NO_LAW, lambda place: None if place == 9 else "finished")
    path, _ = register(ledger, planned.runs[9].run, DOCUMENT)
    path.write_bytes(seal({**(read(path) or {}), "predicted": 2.4}))
    capsys.readouterr()
    assert main(["report", "small", f"runs={ledger.root}"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "on record" in line)
    expected = f"0 predictions, 0 scored, 0 waiting; altered since, and not counted: predictions/{path.name}"
    assert line == f"on record: {expected}"
    assert expected in (ledger.study_folder("small") / "report" / "index.html").read_text()
