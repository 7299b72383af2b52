"""The study in W&B: what it says, that it can be turned off, and that W&B's troubles end in one line."""

from __future__ import annotations

import logging

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


def test_disabled_it_speaks_to_nobody(study, monkeypatch):
    ledger, found, findings, page = study
    monkeypatch.setattr(wandb_summary, "mode", lambda config: "disabled")
    monkeypatch.setattr(wandb_summary, "settings", lambda: pytest.fail("spoke to W&B"))
    mirror(findings, page, ledger, found)


def test_trouble_is_one_line(study, monkeypatch, caplog):
    import wandb

    def init(**given):
        raise RuntimeError("no such\nserver")

    ledger, found, findings, page = study
    monkeypatch.setattr(wandb_summary, "mode", lambda config: "offline")
    monkeypatch.setattr(wandb, "init", init)
    with caplog.at_level(logging.WARNING, "scaling.training.wandb_settings"):
        mirror(findings, page, ledger, found)
    (record,) = caplog.records
    assert "\n" not in record.getMessage()


@pytest.mark.slow
def test_offline_it_leaves_the_table_the_figures_and_the_page(study, monkeypatch):
    ledger, found, findings, page = study
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb_summary, "mode", lambda config: "offline")
    mirror(findings, page, ledger, found)
    written = list((page.parent.parent / "wandb").rglob("*"))
    assert [path for path in written if path.suffix == ".wandb"]
    media = {path.suffix for path in written if "media" in path.parts and path.is_file()}
    assert media == {".json", ".html", ".png"}
    assert len([path for path in written if path.suffix == ".png"]) == len(findings.pictures)
