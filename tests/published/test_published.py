"""Every published fit is reproduced from the shipped points, and the document is what the command prints."""

from pathlib import Path

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law.fit import fit
from scaling.law.objective import LogHuber
from scaling.published import SETS, __main__, datablations, gadre2024, olmo_ladder, porian2024, published_set

DOCUMENT = Path(__file__).parents[2] / "docs" / "published_fits.md"

EXPECTED = {"gadre2024": 104, "datablations": 182, "porian2024": 1745, "olmo_ladder": 30}


def test_every_set_ships_whole():
    counts = {
        "gadre2024": sum(len(gadre2024.points(corpus)) for corpus in gadre2024.CORPORA),
        "datablations": len(datablations.points()),
        "porian2024": sum(len(porian2024.points(setting)) for setting in porian2024.settings()),
        "olmo_ladder": len(olmo_ladder.points()),
    }
    assert counts == EXPECTED
    assert len(datablations.points("all")) == 296


@pytest.mark.parametrize("name", SETS)
def test_every_set_is_credited(name):
    credit = str(published_set(name).CREDIT)
    licences = (Path(__main__.__file__).parent / "tables" / "LICENCES.md").read_text()
    assert "arXiv" in credit
    assert published_set(name).CREDIT.commit in licences


@pytest.mark.parametrize("name", SETS)
def test_every_published_figure_holds(name):
    for row in published_set(name).reproduce():
        assert row.holds, f"{row.quantity}: published {row.published}, ours {row.ours}"


def test_the_printed_digits_of_the_five_corrections():
    exponents = [porian2024.law(setting).law.exponent for setting in porian2024.STEPS.values()]
    assert exponents == pytest.approx([0.835, 0.706, 0.602, 0.571, 0.497], abs=0.0015)


def test_the_intervals_of_the_five_corrections():
    for setting in porian2024.STEPS.values():
        theirs = porian2024.published(setting)
        found = porian2024.law(setting)
        assert found.noise_interval() == pytest.approx((theirs["low"], theirs["high"]), abs=0.007)
        low, high = found.interval()
        assert high - low >= theirs["high"] - theirs["low"] - 0.01


def test_permuting_the_rows_of_a_published_set_changes_no_digit():
    table = gadre2024.points()
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    assert gadre2024.law(table).estimates == gadre2024.law(shuffled).estimates
    runs = datablations.points()
    other = runs.take(np.random.default_rng(1).permutation(len(runs)))
    assert datablations.law(runs).estimates == datablations.law(other).estimates


def test_the_repetition_law_has_an_optimum_below_the_published_one():
    """There are four optima, at .0158047, .0158074, .0158113 and (the published one) .0158259."""
    found = datablations.law(datablations.points())
    assert found.objective == pytest.approx(0.015804662, abs=5e-9)
    assert found.estimates["R_D"] == pytest.approx(95.365, abs=0.01)
    assert found.estimates["R_N"] == pytest.approx(1.7059, abs=0.001)


def test_chinchilla_is_the_over_training_law_of_equal_exponents():
    """On exact losses of the one the other finds the same curve: A = a 6^η, B = b 6^η, α = β = 2η."""
    table = gadre2024.points()
    eta, a, b = 0.14, 40.0, 60.0
    exact = 1.8 + (a * table["M"] ** eta + b * table["M"] ** -eta) * table["C"] ** -eta
    found = fit("chinchilla", table.with_column("loss", exact, "exact"), objective=LogHuber()).estimates
    assert found["alpha"] == pytest.approx(2 * eta, rel=1e-5)
    assert found["beta"] == pytest.approx(2 * eta, rel=1e-5)


def test_two_steps_predict_the_held_out_size():
    chain, large = olmo_ladder.two_step()
    assert len(large) == 6
    columns = {"N": large["N"], "D": large["D"]}
    assert np.abs(chain.loss.predict(**columns) / large["loss"] - 1).max() < 0.03
    assert np.abs(chain.predict(**columns) / large["accuracy"] - 1).max() < 0.03


def test_the_document_is_what_the_command_prints():
    assert DOCUMENT.read_text(encoding="utf-8") == __main__.document()


def test_an_unknown_set_names_the_nearest():
    with pytest.raises(ScalingError, match="did you mean 'porian2024'"):
        published_set("porian")
