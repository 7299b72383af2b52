"""The report of a fit is typed, and its JSON has the keys that scripts rely on."""

import json

import numpy as np
import pytest

from scaling.fit_report.report import EnvelopeReport, MinimaReport, fit_report
from scaling.law import fit
from scaling.law.held_out import split_held_out
from scaling.laws.approaches import envelope, isoflop
from scaling.published import gadre2024, porian2024

RELIED_ON = {"law", "formula", "estimates", "intervals", "objective", "starts_agreeing", "held_out", "points"}
OF_A_LAW = RELIED_ON | {
    *("citation", "inputs", "target", "units", "fixed", "tied", "objective_kind", "converged", "n"),
    *("degrees_of_freedom", "residual_scale", "seed_noise", "condition_number", "largest_leverage"),
    *(
        "not_identified",
        "unidentified",
        "ranges",
        "unreliable",
        "predictions",
        "back_test",
        "optima",
        "checklist",
        "clusters",
    ),
}


def strict(report):
    """The document as a script reads it: no NaN, no infinity, plain types."""
    return json.loads(json.dumps(report.to_json(), allow_nan=False))


@pytest.fixture(scope="module")
def report():
    points, larger = split_held_out(gadre2024.points(), "N>=1e9")
    targets = [{"N": 1e10, "D": 2e11}, {"C": 1e21}]
    return fit_report(fit("chinchilla", points), method="t", held_out=larger, targets=targets)


def test_the_json_of_a_law_has_the_keys_that_scripts_rely_on(report):
    assert set(strict(report)) == OF_A_LAW


def test_what_the_json_states_is_what_the_typed_report_holds(report):
    document = strict(report)
    assert document["intervals"]["alpha"]["low"] == report.intervals["alpha"].low
    assert [point["run"] for point in document["held_out"]["points"]] == list(report.held_out.runs)
    (prediction,), (optimum,) = report.predictions, report.optima
    assert document["predictions"][0]["interval_run"]["high"] == prediction.run.high
    assert document["optima"][0]["N"]["estimate"] == optimum.N.estimate
    assert pytest.approx(6 * optimum.N.estimate * optimum.D.estimate) == optimum.C


def test_a_back_test_is_asked_for(report):
    assert report.back_tests == ()
    assert strict(report)["back_test"] == []
    tests = report.with_back_test().back_tests
    assert tests
    assert all(test.level == report.level for test in tests)


def test_without_intervals_estimates_stay(report):
    plain = fit_report(report.fit, method=None, targets=[{"C": 1e23}])
    (optimum,) = plain.optima
    assert plain.intervals == {}
    assert plain.held_out is None
    assert strict(plain)["optima"][0]["loss"] == {"estimate": optimum.loss}


def test_analyses_without_a_law_of_the_loss_have_the_same_keys():
    points = porian2024.points(next(iter(porian2024.STEPS.values())))
    minima = MinimaReport(points, *(isoflop(points, along=name, kind="akima") for name in "ND"))
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 12), np.geomspace(1e8, 1e11, 40)))
    loss = 1.7 + 400 * N**-0.34 + 900 * D**-0.3
    from scaling.law.columns import from_columns

    curves = from_columns({"N": N, "D": D, "C": 6 * N * D, "loss": loss, "run": [f"{n:.0f}" for n in N]})
    for report in (minima, EnvelopeReport(curves, envelope(curves))):
        document = strict(report)
        assert set(document) >= RELIED_ON
        assert document["intervals"]["a"]["low"] < document["estimates"]["a"] < document["intervals"]["a"]["high"]
