"""Files of a study that were shortened, altered or copied in: they change no answer, or are refused by one line."""

from __future__ import annotations

import pytest

from scaling.cli import main
from scaling.ledger.document import read, seal

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
