"""Published sets of examples/published: they are whole and credited, and every published fit is reproduced."""

import importlib
from pathlib import Path

import pytest

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
        assert "arXiv" in credit
        assert credit.rpartition(" at ")[2].partition(" ")[0] in licences


@pytest.mark.slow
def test_every_published_figure_holds_and_the_document_has_it(module, capsys):
    module("reproduce").main()
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs" / "published_fits.md").read_text(encoding="utf-8")
    assert printed.count("| holds") == 4 + 7 + 2 * 15
    assert "does not hold" not in printed


def test_fits_that_take_no_time_are_those_published(module):
    gadre2024, porian2024 = module("gadre2024"), module("porian2024")
    estimates = gadre2024.law(gadre2024.points()).estimates
    assert (-2 * estimates["eta"], estimates["E"]) == pytest.approx((gadre2024.EXPONENT, gadre2024.FLOOR), abs=1e-5)
    for setting in porian2024.settings():
        exponent = porian2024.law_of_minima(setting).exponent
        assert exponent.estimate == pytest.approx(porian2024.published(setting)["exponent"], abs=1e-6)
    for setting in [*porian2024.STEPS.values()][::4]:  # the intervals of the first and the last correction
        published, ours = porian2024.published(setting), porian2024.law(setting)
        assert (ours.noise.low, ours.noise.high) == pytest.approx((published["low"], published["high"]), abs=0.007)
        assert ours.exponent.high - ours.exponent.low >= published["high"] - published["low"] - 0.01
