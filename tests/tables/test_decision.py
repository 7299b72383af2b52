"""Decision accuracy: pairs by hand, ties, noise, and kept points from the command line."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import scaling
from scaling.cli import main
from scaling.tables.decision import Scale, decide

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "results" / "narang2021" / "points.csv"
STUDY = ROOT / "docs" / "results" / "architecture_exponents-text" / "points.csv"


def drawn(rows, noise, seeds, shift, seed=0):
    """A small scale of true values with seeds of this noise, and a larger one whose true values differ by `shift`."""
    rng = np.random.default_rng(seed)
    true = rng.standard_normal(rows)
    small = {f"row {row}": list(true[row] + noise * rng.standard_normal(seeds)) for row in range(rows)}
    larger = true + shift * rng.standard_normal(rows)
    return Scale("small", small), Scale("large", {f"row {row}": [larger[row]] for row in range(rows)})


def test_pairs_are_counted_by_hand():
    small = Scale("small", {"a": [1.0], "b": [2.0], "c": [3.0], "d": [3.0], "e": []})
    large = Scale("large", {"a": [1.0], "b": [3.0], "c": [2.0], "d": [2.0], "e": [0.0], "f": [1.0]})
    found = decide(small, large)
    # ab, ac and ad are won, bc and bd are lost, and c and d have no winner.
    assert (found["rows"], found["pairs"], found["ties"]) == (4, 5, 1)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert (found["by_seeds"], found["low"]) == (None, None)
    even = decide(Scale("small", {"a": [1.0], "b": [1.0]}), Scale("large", {"a": [1.0], "b": [2.0]}))
    assert even["accuracy"] == 0.5
    assert decide(Scale("small", {"a": [1.0]}), large) is None


def test_the_seeds_say_what_noise_leaves():
    """Two rows by hand, and many rows by what comes: the true order is the same at both scales."""
    small = Scale("small", {"a": [1.0, 2.0], "b": [2.5, 4.5]})
    error = np.sqrt((0.5 + 2.0) / 2 * (1 / 2 + 1 / 2))
    assert decide(small, Scale("large", {"a": [1.0], "b": [2.0]}))["by_seeds"] == pytest.approx(
        stats.t.cdf(2.0 / error, 2)
    )
    made: list[Any] = [decide(*drawn(30, 0.5, 3, 0.0, seed)) for seed in range(20)]
    expected, came = (np.mean([decision[name] for decision in made]) for name in ("by_seeds", "accuracy"))
    assert expected == pytest.approx(came, abs=0.02)


def test_rows_that_all_agree_are_no_certainty():
    small, large = drawn(8, 1e-3, 3, 0.0)
    found = decide(small, large)
    assert (found["accuracy"], found["high"]) == (1.0, 1.0)
    assert found["low"] == pytest.approx(0.025 ** (1 / 4))


def test_kept_points_decide_early_for_the_end_and_for_the_paper(capsys):
    assert main(["decide", "narang2021_cpu", "--from", str(KEPT), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    made = {(each["small"], each["large"]): each for each in document["decisions"]}
    early, final, paper = "our loss at 0.125 of the steps", "our final loss", "the paper's final loss"
    assert set(made) == {(early, final), (early, paper), (final, paper), ("the paper's early loss", paper)}
    found = made[early, final]
    assert (found["rows"], found["pairs"]) == (52, 1326)
    with KEPT.open() as lines:
        rows = list(csv.DictReader(lines))
    names = sorted({run["row"] for run in rows})
    means = {
        column: {name: np.mean([float(run[column]) for run in rows if run["row"] == name]) for name in names}
        for column in ("early", "loss")
    }
    agree = [
        (means["early"][a] < means["early"][b]) == (means["loss"][a] < means["loss"][b])
        for place, a in enumerate(names)
        for b in names[place + 1 :]
    ]
    assert found["accuracy"] == pytest.approx(np.mean(agree))
    assert main(["decide", "narang2021_cpu", "--from", str(KEPT)]) == 0
    assert "decision accuracy" in capsys.readouterr().out
    pair = scaling.decide("narang2021_cpu", source=KEPT, rows=["GeLU", "GeGLU"])
    assert {decision["rows"] for decision in pair.decisions} <= {2, 3}
    same = scaling.decide("narang2021_cpu", source=KEPT, against=KEPT)
    assert {decision["accuracy"] for decision in same.decisions if decision["small"] == final} == {1.0}


def test_the_sizes_of_a_study_decide_for_the_largest(capsys):
    found = scaling.decide("narang2021", source=STUDY)
    assert len(found.decisions) == 12
    assert {decision["large"] for decision in found.decisions} == {"width=96 D=2M"}
    assert found.data.loc[found.data["small"] == "width=72 D=2M", "accuracy"].tolist() == [1.0]
    assert found.format("markdown").count("width=24") == 3
    assert main(["decide", "narang2021", "--from", str(STUDY), "--against", str(KEPT)]) == 2
    assert "the runs of --from are of a study" in capsys.readouterr().err
