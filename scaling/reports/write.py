"""Write a study's report: the page with its points, its fit and its figures; keep a copy; fit a copy again."""

from __future__ import annotations

import shutil
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files as resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.markup import Block, Code, Items, Pairs, shell, to_html, to_markdown
from scaling.base.printing import Html, csv_rows, join, tag
from scaling.ledger import Ledger
from scaling.reports.answer import answer, tested, unreliable
from scaling.reports.figures import figures, of_law
from scaling.reports.provenance import Record, record, setup, study_yaml
from scaling.reports.sections import STORE, counts, sections, summary
from scaling.studies.findings import FIT, PRINT, Announce, Findings, find, read_fit, rows
from scaling.studies.plan import newest
from scaling.studies.question import read
from scaling.training.wandb_settings import mode, settings, tried

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

PAGE, POINTS, PARAGRAPH, RECORD = "index.html", "points.csv", "README.md", "record.json"


def write(
    ledger: Ledger, plan: Plan, announce: Announce = lambda step: None, kept: Path | None = None
) -> tuple[Findings, Path]:
    """The results of the finished runs of a study, and its page; `announce` is given each step that takes time. With a
    folder `kept` the report is copied there, and the page is that of the copy.

    Two commands report a study one after the other, each from what the ledger holds by then.
    """
    folder = ledger.study_folder(plan.question.name)
    with atomic.alone(folder / "report.lock", lambda: announce("wait for another report of this study")):
        plan = newest(ledger, plan)
        announce(f"read {plural(len(plan.runs), 'run')}")
        table = rows(ledger, plan)
        finished = [row["run"] for row in table if row["status"] == "finished"]
        answers = setup([ledger.spec(run) for run in finished], [ledger.result(run) for run in finished])
        findings = find(plan.question, table, folder / "report", answers, announce)
        announce("write the page")
        facts, written = record(findings, ledger, plan), folder / "report" / PAGE
        atomic.write(written, page(findings, facts))
        return findings, written if kept is None else keep(findings, facts, written.parent, kept) / PAGE


# A copy that is read without its ledger


def keep(findings: Findings, known: Record, source: Path, folder: Path) -> Path:
    """Copy the report in `source` to FOLDER/NAME, with the study's YAML, the record and a paragraph on its result."""
    target = folder / findings.question.name
    atomic.write(target / f"{target.name}.yaml", study_yaml(findings, known["command"]))
    _write_copy(findings, known, target)
    drawn = [FIT, PRINT, *(f"{name}.png" for name in findings.pictures)] if findings.document else []
    for name in (POINTS, *drawn):
        shutil.copyfile(source / name, target / name)
    atomic.write_json(target / RECORD, {**known, "points": _hash(target / POINTS)})
    return target


def is_kept(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (PAGE, POINTS, RECORD, f"{folder.name}.yaml"))


def fit_again(folder: Path, announce: Announce = lambda step: None) -> tuple[Findings, Path]:
    """A kept report with its law fitted again to the points it keeps. What only the ledger knew is in record.json."""
    points, fix = folder / POINTS, "keep the report of its ledger again"
    try:
        facts = atomic.read_json(folder / RECORD)
        is_whole = facts.pop("points") == _hash(points)
        lines = csv_rows(points.read_text()) if is_whole else []
        rows = [{name: _value(name, text) for name, text in line.items()} for line in lines]
        _ = [facts[key] for key in ("day", "compute", "effort", "circumstances", "command", "decisions")]
        _ = [facts["runs"][row["run"]][key] for row in rows for key in ("state", "time", "address")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScalingError(f"the record is damaged: {error}", file=folder / RECORD, fix=fix) from None
    fix = f"put the file back as it was kept, or {fix}"
    refuse(not is_whole, "these are not the points of the kept report", fix, file=points)
    question, before = read(str(folder / f"{folder.name}.yaml")), read_fit(folder / FIT) or {}
    findings = find(question, rows, folder, before.get("setup"), announce)
    _write_copy(findings, facts, folder)
    return findings, folder / PAGE


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _value(name: str, text: str) -> Any:
    """A cell as it was before it was written: a number, a text, or None."""
    for kind in (int, float) if name not in ("run", "name", "row") else ():
        with suppress(ValueError):
            if str(value := kind(text)) == text:
                return value
    return text or None


def _write_copy(findings: Findings, known: Record, folder: Path) -> None:
    atomic.write(folder / PAGE, page(findings, known, store=None))
    answered, document = answer(findings), findings.document
    doubts, test, fit = unreliable(document), tested(document), ", with the [fit](fit.json)." if document else "."
    blocks: list[Block] = [
        join("# ", f"{findings.question.name}: {answered.standing}"),
        join("**", findings.question.question, "**"),
        join(answered.sentence, test and f" {test}"),
        *([Items(doubts)] if doubts else []),
        *(block for key, _, shown in sections(findings, known, None) if key in ("test", "tasks") for block in shown),
        Pairs(dict(sorted(known["circumstances"].items()))),
        Code(known["command"]),
        *figures(findings, of_law(findings)[:1]),
        Html(f"[The page]({PAGE}), the [study]({folder.name}.yaml), and its [points]({POINTS}){fit}"),
    ]
    atomic.write(folder / PARAGRAPH, to_markdown(blocks))


# The page


def page(findings: Findings, known: Record, store: PurePosixPath | None = STORE) -> str:
    """One HTML file that opens from a disk without a network; the same bytes for the same runs.

    No text in it can act as markup or as script. Without a `store` the runs lead to no settings.
    """
    study, answered, document = findings.question.name, answer(findings), findings.document
    doubts, test = unreliable(document), tested(document)
    kind = "standing" if answered.standing in ("identified", "compared") else "standing warn"
    kicker = (f"scaling study “{study}”", counts(findings), known["day"])
    key = (
        tag("div", tag("dt", name), tag("dd", figure, class_="figure"), *(tag("dd", each) for each in remarks if each))
        for name, figure, remarks in summary(findings, known)
    )
    header = tag(
        "header",
        tag(
            "p",
            tag("span", answered.standing, class_=kind),
            tag("a", plural(len(doubts), "doubt"), href="#trust") if doubts else None,
            *(tag("span", text) for text in kicker if text),
            class_="kicker",
        ),
        tag("h1", findings.question.question),
        *(tag("p", sentence, class_="answer") for sentence in (answered.sentence, test) if sentence),
        tag("dl", *key, class_="key"),
    )
    parts = (
        tag("section", tag("h2", title, id=key), to_html(blocks), aria_labelledby=key)
        for key, title, blocks in sections(findings, known, store)
    )
    fit = (", ", tag("a", FIT, href=FIT)) if findings.document else ()
    made = "Made by scaling from the ledger of this study. With this page: "
    footer = tag("footer", made, tag("a", POINTS, href=POINTS), *fit, ".")
    skip = tag("a", "To the report", href="#main", class_="skip")
    style = (resources("scaling.reports") / "page.css").read_text(encoding="utf-8")
    body = join(skip, header, tag("main", *parts, id="main", tabindex=-1), footer)
    return shell(f"{study} — scaling study", body, style)


# The study as one run of W&B: its points as a table, its law, its figures and its page


def mirror(findings: Findings, page: Path, ledger: Ledger, plan: Plan) -> None:
    """Show the findings in W&B where the study's runs are shown there; a later call shows them in the same place.
    Whatever W&B does here takes a bounded time, and changes nothing of what was found.
    """
    name, config, folder = plan.question.name, plan.runs[0].experiment.config, ledger.study_folder(plan.question.name)
    about = {"question": plan.question.question, "base": plan.question.base, "laws": list(plan.question.laws)}
    runs = sha256(" ".join(run.run for run in plan.runs).encode()).hexdigest()
    shown: Any = mode(config)
    if shown == "disabled":
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
            mode=shown,
            dir=str(folder / "wandb"),
            resume="allow" if shown == "online" else None,
            settings=settings(),
        )
        run.summary.update(headline(findings))
        columns: list[Any] = list(dict.fromkeys(name for row in findings.rows for name in row))
        table = wandb.Table(columns=columns, data=[[*map(row.get, columns)] for row in findings.rows])
        images = {f"figures/{key}": wandb.Image(str(page.with_name(f"{key}.png"))) for key in findings.pictures}
        run.log({"points": table, "report": wandb.Html(str(page), inject=False), **images})
        run.finish()

    tried(show, "the report has everything")


def headline(findings: Findings) -> dict[str, Any]:
    """The law and its test as W&B's columns: `E`, `E/low`, `E/high`, `held_out/largest_relative_error`, …"""
    document = findings.document
    if not document:
        return {"law": None, "reason": findings.reason}
    tested, entropy = document["held_out"] or {}, document.get("entropy", {})
    summary: dict[str, Any] = {"law": document["law"], **document["estimates"]}
    for name, interval in document["intervals"].items():
        summary |= {f"{name}/low": interval["low"], f"{name}/high": interval["high"]}
    summary |= {f"held_out/{name}": tested.get(name) for name in ("largest_relative_error", "covered", "level")}
    summary |= {f"entropy/{name}": value for name, value in entropy.items()}
    known = {name: value for name, value in summary.items() if value is not None}
    return {**known, "not_identified": list(document["not_identified"])}
