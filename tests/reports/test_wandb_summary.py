"""The study in W&B: what it says, that it can be turned off, and that W&B's troubles end in one line and soon."""

from __future__ import annotations

import logging
import time

import pytest

from scaling.reports import wandb_summary
from scaling.reports.wandb_summary import headline, mirror


def test_the_headline_has_the_law_with_its_intervals(study):
    findings = study[2]
    told = headline(findings)
    interval = findings.document["intervals"]["E"]
    assert (told["law"], told["E/low"], told["E/high"]) == ("chinchilla", interval["low"], interval["high"])
    assert told["held_out/largest_relative_error"] == findings.document["held_out"]["largest_relative_error"]
    assert told["entropy/known"] == findings.document["entropy"]["known"]
    assert None not in told.values()


def test_disabled_it_never_imports_wandb(study, monkeypatch):
    ledger, found, findings, page = study
    monkeypatch.setattr(wandb_summary, "mode", lambda experiment: "disabled")
    monkeypatch.setattr(wandb_summary, "_show", lambda *given: pytest.fail("spoke to W&B"))
    mirror(findings, page, ledger, found)


@pytest.mark.parametrize("trouble", ["raises", "hangs"])
def test_trouble_is_one_line_and_bounded(study, monkeypatch, caplog, trouble):
    import wandb

    def init(**given):
        if trouble == "raises":
            raise RuntimeError("no such\nserver")
        time.sleep(3)

    ledger, found, findings, page = study
    monkeypatch.setattr(wandb_summary, "mode", lambda experiment: "offline")
    monkeypatch.setattr(wandb_summary, "START", 0.1)
    monkeypatch.setattr(wandb_summary, "EXIT", 0.4 if trouble == "hangs" else 30.0)
    monkeypatch.setattr(wandb, "init", init)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "scaling.reports.wandb_summary"):
        mirror(findings, page, ledger, found)
    assert time.monotonic() - begun < 2.5
    (record,) = caplog.records
    assert "\n" not in record.getMessage()


@pytest.mark.slow
def test_offline_it_leaves_the_table_the_figures_and_the_page(study, monkeypatch):
    ledger, found, findings, page = study
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb_summary, "mode", lambda experiment: "offline")
    mirror(findings, page, ledger, found)
    written = list((page.parent.parent / "wandb").rglob("*"))
    assert [path for path in written if path.suffix == ".wandb"]
    media = {path.suffix for path in written if "media" in path.parts and path.is_file()}
    assert media == {".json", ".html", ".png"}
    assert len([path for path in written if path.suffix == ".png"]) == len(findings.pictures)
