"""The study as one run of W&B: its points as a table, its law, its figures and its page. The ledger stays the record.

Whatever W&B does here takes a bounded time, and changes nothing of what was found.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from scaling.ledger import Ledger
from scaling.studies.findings import Findings
from scaling.studies.plan import Plan
from scaling.training.wandb_settings import mode, settings, tried


def mirror(findings: Findings, page: Path, ledger: Ledger, plan: Plan) -> None:
    """Show the findings in W&B where the study's runs are shown there; a later call shows them in the same place."""
    name, config, folder = plan.question.name, plan.runs[0].experiment.config, ledger.study_folder(plan.question.name)
    about = {"question": plan.question.question, "base": plan.question.base, "laws": list(plan.question.laws)}
    runs = sha256(" ".join(run.run for run in plan.runs).encode()).hexdigest()
    mode_name: Any = mode(config)
    if mode_name == "disabled":
        return

    def show() -> None:
        import wandb

        (folder / "wandb").mkdir(exist_ok=True)
        run = wandb.init(
            project=config["log.project"] or "scaling",
            group=name,
            name=name,
            id=f"study-{runs[:16]}",
            job_type="study",
            config=about,
            mode=mode_name,
            dir=str(folder / "wandb"),
            resume="allow" if mode_name == "online" else None,
            settings=settings(),
        )
        run.summary.update(headline(findings))
        table = wandb.Table(columns=list(findings.rows[0]), data=[[*row.values()] for row in findings.rows])
        images = {f"figures/{key}": wandb.Image(str(page.with_name(f"{key}.png"))) for key in findings.pictures}
        run.log({"points": table, "report": wandb.Html(str(page), inject=False), **images})
        run.finish()

    tried(show, "the report has everything")


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
