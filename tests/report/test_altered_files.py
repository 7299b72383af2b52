"""Files of a study that were shortened, altered or copied in: they change no answer, or are refused by one line."""

from __future__ import annotations

import pytest

from scaling.cli import main
from scaling.ledger.document import read, seal
from scaling.ledger.registered import register

NO_LAW = {"law: chinchilla": ""}


def _few(points):
    return dict(list(points.items())[:2])


def _tripled(points):
    return {run: {**columns, "N": 3 * columns["N"]} for run, columns in points.items()}


@pytest.mark.parametrize("change", [_few, _tripled, lambda points: list(points.values()), lambda _: None])
def test_counts_that_were_altered_change_no_point(change, made_study, tmp_path):
    ledger, _ = made_study(tmp_path, NO_LAW)
    folder = ledger.study_folder("small")

    def points() -> str:
        assert main(["report", "small", f"runs={ledger.root}"]) == 0
        return (folder / "report" / "points.csv").read_text()

    expected, file = points(), folder / "counts.json"
    kept = read(file)
    file.write_bytes(seal({**kept, "points": change(kept["points"])}))
    assert points() == expected
    assert read(file) == kept


PREDICTION = {
    "law": "chinchilla",
    "formula": "L = E",
    "estimates": {"E": 2.0},
    "row": {"N": 1e6, "D": 1e7},
    "predicted": 2.5,
    "level": 0.95,
    "interval_mean": None,
    "interval_run": None,
    "points": {"source": "points.csv", "fitted": 9, "sha256": "0" * 64},
    "version": "1",
}


def test_a_report_names_a_prediction_that_was_altered_and_does_not_count_it(made_study, tmp_path, capsys):
    ledger, planned = made_study(tmp_path, NO_LAW, lambda place: None if place == 9 else "finished")
    path, _ = register(ledger, planned.runs[9].run, PREDICTION)
    path.write_bytes(seal({**read(path), "predicted": 2.4}))
    capsys.readouterr()
    assert main(["report", "small", f"runs={ledger.root}"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "on record" in line)
    expected = f"0 predictions, 0 scored, 0 waiting; altered since, and not counted: predictions/{path.name}"
    assert line == f"on record: {expected}"
    assert expected in (ledger.study_folder("small") / "report" / "index.html").read_text()
