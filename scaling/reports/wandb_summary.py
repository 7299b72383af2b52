"""The study as one run of W&B: its points as a table, its law, its figures and its page. The ledger stays the record.

As with the runs' own mirror, whatever W&B does here takes a bounded time, and changes nothing of what was found.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from scaling.ledger import Ledger
from scaling.studies.findings import Findings
from scaling.studies.plan import Plan
from scaling.training.mirror import EXIT, SILENT, START, mode

logger = logging.getLogger(__name__)


def mirror(findings: Findings, page: Path, ledger: Ledger, plan: Plan) -> None:
    """Show the findings in W&B where the study's runs are shown there; a later call shows them in the same place."""
    experiment = plan.runs[0].experiment
    how = mode(experiment)
    if how == "disabled":
        return
    given = {
        "project": experiment.config["log"]["project"] or "scaling",
        "group": plan.question.name,
        "name": plan.question.name,
        "id": f"study-{sha256(' '.join(run.run for run in plan.runs).encode()).hexdigest()[:16]}",
        "job_type": "study",
        "config": {"question": plan.question.question, "base": plan.question.base, "laws": list(plan.question.laws)},
        "mode": how,
        "dir": str(ledger.study_folder(plan.question.name) / "wandb"),
        "resume": "allow",
    }
    thread = threading.Thread(target=_show, args=(given, findings, page), name="wandb", daemon=True)
    thread.start()
    thread.join(START + EXIT)
    if thread.is_alive():
        logger.warning("W&B did not take the study in time; its report has everything")


def _show(given: Mapping[str, Any], findings: Findings, page: Path) -> None:
    try:
        import wandb

        Path(given["dir"]).mkdir(exist_ok=True)
        run = wandb.init(**given, settings=wandb.Settings(**SILENT))
        run.summary.update(headline(findings))
        points = wandb.Table(columns=list(findings.rows[0]))
        for row in findings.rows:
            points.add_data(*row.values())
        pictures = {f"figures/{name}": wandb.Image(str(page.with_name(f"{name}.png"))) for name in findings.pictures}
        run.log(
            {
                "points": points,
                "report": wandb.Html(str(page), inject=False),
                **pictures,
            }
        )
        run.finish()
    except Exception as error:
        logger.warning("W&B: %s; the report has everything", " ".join(str(error).split())[:200])


class LiveMirror:
    """The looks at a study while its runs go on, as a run of W&B in the study's group."""

    def __init__(self, ledger: Ledger, plan: Plan):
        experiment, name = plan.runs[0].experiment, plan.question.name
        self.run, self._logged, how = None, -1, mode(experiment)
        if how != "disabled":
            given = {
                "project": experiment.config["log"]["project"] or "scaling",
                "group": name,
                "name": f"{name} (live)",
                "job_type": "watch",
                "mode": how,
                "dir": str(ledger.study_folder(name) / "wandb"),
            }
            self._within(START, lambda: self._open(given))

    def _open(self, given: Mapping[str, Any]) -> None:
        import wandb

        Path(given["dir"]).mkdir(exist_ok=True)
        self.run = wandb.init(**given, settings=wandb.Settings(**SILENT))

    def log(self, look: Mapping[str, Any]) -> None:
        """One look, where a further run has finished."""
        if self.run is None or look["finished"] == self._logged:
            return
        self._logged, run = look["finished"], self.run
        values = {f"watch/{key}": look[key] for key in ("finished", "share", "seconds_left")}
        for key in ("interval", "interval_of_one_look"):
            ends = look[key] or {}
            values |= {f"watch/{key}/{end}": ends.get(end) for end in ("estimate", "low", "high")}
        self._within(START, lambda: run.log({key: value for key, value in values.items() if value is not None}))

    def end(self) -> None:
        if self.run is not None:
            self._within(EXIT, self.run.finish)

    def _within(self, seconds: float, call: Callable[[], Any]) -> None:
        """W&B in a thread of its own: it may take so long, and what it raises is a warning."""

        def tried() -> None:
            try:
                call()
            except Exception as error:
                self.run = None
                logger.warning("W&B: %s", " ".join(str(error).split())[:200])

        thread = threading.Thread(target=tried, name="wandb", daemon=True)
        thread.start()
        thread.join(seconds)


def headline(findings: Findings) -> dict[str, Any]:
    """The law and its test as W&B's columns: `E`, `E/low`, `E/high`, `held_out/largest_relative_error`, …"""
    document = findings.document
    if document is None:
        return {"law": None, "reason": findings.reason}
    summary: dict[str, Any] = {"law": document["law"], **document["estimates"]}
    for name, interval in document["intervals"].items():
        summary |= {f"{name}/low": interval["low"], f"{name}/high": interval["high"]}
    summary["not_identified"] = list(document["not_identified"])
    if document["held_out"] is not None:
        summary |= {
            f"held_out/{name}": document["held_out"][name] for name in ("largest_relative_error", "covered", "level")
        }
    if "entropy" in document:
        summary |= {f"entropy/{name}": value for name, value in document["entropy"].items()}
    return {name: value for name, value in summary.items() if value is not None}
