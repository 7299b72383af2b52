"""Published sets of examples/published: they are whole and credited, and every published fit is reproduced."""

import importlib
from pathlib import Path

import pytest

import scaling

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "published"
SETS = ("gadre2024", "datablations", "porian2024", "olmo_ladder")


@pytest.fixture
def module(monkeypatch):
    """Import a file of the folder by name, as a person does who works in the folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_every_set_is_whole_and_credited(module):
    gadre2024, datablations, porian2024, olmo_ladder = map(module, SETS)
    assert sum(len(gadre2024.points(corpus)) for corpus in gadre2024.CORPORA) == 104
    assert (len(datablations.points()), len(datablations.points("all"))) == (182, 296)
    assert sum(len(porian2024.points(setting)) for setting in porian2024.settings()) == 1745
    assert len(olmo_ladder.points()) == 30
    licences = (FOLDER / "tables" / "LICENCES.md").read_text(encoding="utf-8")
    for credit in (module(name).CREDIT for name in SETS):
        commit = credit.rpartition(" at ")[2].partition(" ")[0]
        assert "arXiv" in credit
        assert commit in licences


@pytest.mark.slow
def test_every_published_figure_holds_and_the_document_has_it(module, capsys):
    reproduce = module("reproduce")
    reproduce.main()
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs" / "published_fits.md").read_text(encoding="utf-8")
    assert printed.count("| holds") == 4 + 7 + 2 * 15
    assert "does not hold" not in printed


def test_the_intervals_of_the_five_corrections(module):
    porian2024 = module("porian2024")
    for setting in porian2024.STEPS.values():
        published, ours = porian2024.published(setting), porian2024.law(setting)
        assert (ours.noise.low, ours.noise.high) == pytest.approx((published["low"], published["high"]), abs=0.007)
        assert ours.exponent.high - ours.exponent.low >= published["high"] - published["low"] - 0.01


def test_chinchilla_is_the_over_training_law_of_equal_exponents(module):
    """On exact losses of the one the other finds the same curve: A = a 6^η, B = b 6^η, α = β = 2η."""
    table, eta = module("gadre2024").points(), 0.14
    exact = 1.8 + (40 * table["M"] ** eta + 60 * table["M"] ** -eta) * table["C"] ** -eta
    found = scaling.laws.fit("chinchilla", table.with_column("loss", exact, "exact"), objective="log_huber").estimates
    assert found["alpha"] == pytest.approx(2 * eta, rel=1e-5)
    assert found["beta"] == pytest.approx(2 * eta, rel=1e-5)
