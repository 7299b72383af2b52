"""The study as one run of W&B: its points as a table, its law, its figures and its page. The ledger stays the record.

Whatever W&B does here takes a bounded time, and changes nothing of what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from scaling.ledger import Ledger
from scaling.studies.findings import Findings
from scaling.studies.plan import Plan
from scaling.training.wandb_settings import mode, settings, tried

REPORTED = "the report has everything"


def mirror(findings: Findings, page: Path, ledger: Ledger, plan: Plan) -> None:
    """Show the findings in W&B where the study's runs are shown there; a later call shows them in the same place."""
    name = plan.question.name
    config = {"question": plan.question.question, "base": plan.question.base, "laws": list(plan.question.laws)}
    runs = sha256(" ".join(run.run for run in plan.runs).encode()).hexdigest()

    def show() -> None:
        run = _opened(ledger, plan, name=name, id=f"study-{runs[:16]}", job_type="study", config=config)
        if run is not None:
            import wandb

            run.summary.update(headline(findings))
            table = wandb.Table(columns=list(findings.rows[0]), data=[[*row.values()] for row in findings.rows])
            images = {f"figures/{key}": wandb.Image(str(page.with_name(f"{key}.png"))) for key in findings.pictures}
            run.log({"points": table, "report": wandb.Html(str(page), inject=False), **images})
            run.finish()

    tried("W&B", show, REPORTED)


def _opened(ledger: Ledger, plan: Plan, **choices: Any) -> Any:
    """A W&B run in the study's group; None where W&B is disabled."""
    config, name = plan.runs[0].experiment.config, plan.question.name
    how, folder = mode(config), ledger.study_folder(name) / "wandb"
    if how == "disabled":
        return None
    import wandb

    folder.mkdir(exist_ok=True)
    where = {"project": config["log.project"] or "scaling", "group": name, "mode": how, "dir": str(folder)}
    return wandb.init(**where, resume="allow" if how == "online" else None, **choices, settings=settings())


class LiveMirror:
    """The looks at a study while its runs go on, as a run of W&B in the study's group."""

    def __init__(self, ledger: Ledger, plan: Plan):
        self._run: Any = None
        self._logged = -1
        tried("W&B", lambda: self._open(ledger, plan), REPORTED)

    def _open(self, ledger: Ledger, plan: Plan) -> None:
        self._run = _opened(ledger, plan, name=f"{plan.question.name} (live)", job_type="watch")

    def log(self, look: Mapping[str, Any]) -> None:
        """One look, where a further run has finished."""
        if self._run is None or look["finished"] == self._logged:
            return
        self._logged = look["finished"]
        values = {f"watch/{key}": look[key] for key in ("finished", "share", "seconds_left")}
        for key in ("interval", "interval_of_one_look"):
            ends = look[key] or {}
            values |= {f"watch/{key}/{end}": ends.get(end) for end in ("estimate", "low", "high")}
        shown = {key: value for key, value in values.items() if value is not None}
        tried("W&B", lambda: self._run.log(shown), REPORTED)

    def end(self) -> None:
        if self._run is not None:
            tried("W&B", self._run.finish, REPORTED)


def headline(findings: Findings) -> dict[str, Any]:
    """The law and its test as W&B's columns: `E`, `E/low`, `E/high`, `held_out/largest_relative_error`, …"""
    document = findings.document
    if document is None:
        return {"law": None, "reason": findings.reason}
    summary: dict[str, Any] = {"law": document["law"], **document["estimates"]}
    for name, interval in document["intervals"].items():
        summary |= {f"{name}/low": interval["low"], f"{name}/high": interval["high"]}
    summary["not_identified"] = list(document["not_identified"])
    tested, entropy = document["held_out"] or {}, document.get("entropy", {})
    summary |= {f"held_out/{name}": tested.get(name) for name in ("largest_relative_error", "covered", "level")}
    summary |= {f"entropy/{name}": value for name, value in entropy.items()}
    return {name: value for name, value in summary.items() if value is not None}
