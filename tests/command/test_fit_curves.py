"""`scaling fit-curves`: a table of curves in, the law, held-out and unfinished runs out."""

import numpy as np
import pandas
import pytest

import scaling
from benchmarks.coverage.studies import KINDS, curve_design, draw_curves
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.laws.curves import read_curves
from scaling.laws.points import load_points


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Five sizes of the quickstart's design; the largest is held out, and the schedule of one run goes on."""
    curves = draw_curves(curve_design(), KINDS["trunks differ most"], np.random.default_rng(2))
    frames = []
    for curve in curves:
        rows = {"run": curve.run, "N": curve.N, "trunk": curve.trunk, "kind": "evaluate"}
        rows |= {
            "step": curve.steps,
            "tokens": curve.steps * 1024,
            "lr": curve.rates[curve.steps - 1],
            "loss": curve.losses,
        }
        frames.append(pandas.DataFrame({**rows, "held_out": int(curve.N == 221184)}))
    file = tmp_path_factory.mktemp("curves") / "curves.csv"
    pandas.concat(frames).to_csv(file, index=False)
    return file


def test_the_law_of_curves_and_what_it_predicts_are_printed(table):
    fitted = scaling.fit_curves(table, law="annealed_curve")
    for text in ("losses of 23 curves, R² 0.9", "of a new run"):
        assert text in str(fitted)
    document = fitted.to_json()
    assert document["law"] == "annealed_curve"
    assert document["curves"] == 23
    assert {row["N"] for row in document["held_out"]} == {221184.0}
    assert all(abs(row["relative_error"]) < 0.02 for row in document["held_out"])
    assert document["errors"]["training"] is None


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--objective", "squared"], "there is no option --objective"),
        (["--law", "chinchilla"], "law='chinchilla': expected one of multi_power, annealed_curve"),
        (["--after", "soon"], "after='soon': is not a number"),
        (["--level", "2"], "level=2.0"),
    ],
)
def test_what_does_not_go_together_is_refused(table, words, reason, capsys):
    assert main(["fit-curves", str(table), *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_table_without_a_schedule_or_of_two_sets_is_refused(table, tmp_path, capsys):
    frame = pandas.read_csv(table)
    frame.drop(columns="lr").to_csv(tmp_path / "none.csv", index=False)
    assert main(["fit-curves", str(tmp_path / "none.csv")]) == 2
    assert "a curve without a schedule says nothing of another" in capsys.readouterr().err
    frame.assign(validation=np.where(frame["N"] > 3e4, "a", "b")).to_csv(tmp_path / "two.csv", index=False)
    assert main(["fit-curves", str(tmp_path / "two.csv")]) == 2
    assert "validation" in capsys.readouterr().err


def test_a_schedule_may_end_at_zero(table):
    frame = pandas.read_csv(table)
    last = frame.groupby("run")["step"].transform("max") == frame["step"]
    ended = read_curves(load_points(frame.assign(lr=frame["lr"].where(~last, 0.0))))
    assert {float(curve.rates[-1]) for curve in ended} == {0.0}
    for wrong in (-1e-3, np.nan):
        with pytest.raises(ScalingError, match="learning rates below 0, missing, or all 0; correct lr"):
            read_curves(load_points(frame.assign(lr=frame["lr"].where(~last, wrong))))
