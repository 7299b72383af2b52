"""The sections of a report, each a list of blocks: the law, its test, rows compared, the runs, and what to doubt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from scaling.base.errors import plural
from scaling.base.markup import Block, Code, Heading, Items, Pairs, ends, formula, percent, signed, significant
from scaling.base.printing import Html, Table, join, scientific, short, tag, titled
from scaling.laws.compare import COMPUTE
from scaling.laws.horizon import KNOBS
from scaling.laws.horizon import sentence as next_run
from scaling.laws.law import MEANINGS, PREFIX
from scaling.laws.report import NOT_IDENTIFIED, coverage, held_out, optima, predictions, tried
from scaling.laws.report import estimates as fitted
from scaling.ledger import RESULTS
from scaling.reports.answer import (
    advantages,
    difference,
    exponent,
    floor,
    largest_error,
    scatter,
    unreliable,
)
from scaling.reports.figures import DOUBT, TEST, figures, of_law
from scaling.reports.provenance import Record, chosen, study_yaml
from scaling.studies.findings import Findings, picture_of

Document = Mapping[str, Any]
STORE = PurePosixPath("../../../store")
"""From studies/NAME/report to the runs."""


def sections(
    findings: Findings, record: Record, store: PurePosixPath | None = STORE
) -> list[tuple[str, str, Sequence[Block]]]:
    """The key, the title and the blocks of each section that has something to show. Without a `store` the runs lead to
    no settings.
    """
    document = findings.document
    all_sections: list[tuple[str, str, Sequence[Block]]] = [
        ("law", "The law", law(findings, document) if document else []),
        ("test", "The test", test(findings, document) if document and document["held_out"] else []),
        ("tasks", "The tasks", [block for scores in findings.tasks for block in task(findings, scores)]),
        ("rows", "Rows compared", rows(findings)),
        ("decisions", "The decisions", chosen(record["decisions"])),
        ("runs", "The runs", [runs(findings, record, store)]),
        ("trust", "Reliability", trust(findings, document) if document else []),
        ("horizon", "Ten and a hundred times further", farther(findings, document) if document else []),
        ("made", "How it was made", made(findings, record)),
    ]
    return [section for section in all_sections if section[2]]


def summary(findings: Findings, record: Record) -> Iterator[tuple[str, str, list[str]]]:
    """Three or four figures, each with its name and remarks."""
    document = findings.document or {"intervals": {}, "units": {}, "held_out": None}
    name, entropy, tested = floor(document), document.get("entropy"), document["held_out"]
    interval = document["intervals"].get(name)
    if interval is not None and name in document["unidentified"]:
        reasons = document["not_identified"]
        reason = next((why for why in reasons if why.startswith(f"{name} ")), reasons[0])
        yield "Irreducible loss", NOT_IDENTIFIED, [reason, tried(document)]
    elif interval is not None:
        figure = significant(interval["estimate"], interval["low"], interval["high"])
        known = [] if entropy is None else [f"the known entropy is {entropy['known']:.4f}"]
        yield "Irreducible loss", figure, [f"nats per token, {interval['level']:.0%} {ends(interval)}", *known]
    if tested:
        remarks = [f"largest of {tested['n']} runs" if tested["n"] > 1 else None, coverage(tested)]
        yield "Error on held-out loss", largest_error(tested), ["; ".join(filter(None, remarks))]
    if entropy is not None and entropy["excess_errors"]:
        remark = "of the held-out loss above the entropy, the harder figure"
        yield "Error of the excess", signed(max(entropy["excess_errors"], key=abs)), [remark]
    yield "Compute", record["compute"], [record["effort"]]


def counts(findings: Findings) -> str:
    """Finished, held out, diverged and still to do, in one line."""
    states, held_out = Counter(row["status"] for row in findings.rows), sum(row["held_out"] for row in findings.rows)
    ended = {**{state: states[state] for state in RESULTS[1:]}, "beside them": states["beside"]}
    left = len(findings.rows) - states["finished"] - sum(ended.values())
    parts = [f"{states['finished']} finished"] + ([f"{held_out} of them held out"] if held_out and not left else [])
    return ", ".join([*parts, *(f"{count} {word}" for word, count in {**ended, "not done": left}.items() if count)])


def law(findings: Findings, document: Document) -> list[Block]:
    """The formula, what it was fitted to, what its letters count, its parameters and its predictions."""
    definitions, planned = document["points"]["definitions"], plural(len(findings.rows), "planned run")
    fitted_to = f"{document['n']} of {planned}: {counts(findings)}."
    counted = "; ".join(f"{name}: {definitions[name]}" for name in MEANINGS if name in definitions)
    first, *pictures = figures(findings, of_law(findings)) or [None]
    tables = [fitted(document), compared(document), predictions(document), optima(document)]
    return _present(_stated(document, f"fitted to {fitted_to}"), counted and f"{counted}.", first, *tables, *pictures)


def _present(*blocks: Block | None) -> list[Block]:
    return [block for block in blocks if block]


def _stated(document: Document, fit: str) -> Html:
    """The formula of a law with its citation, and what it was fitted to."""
    return join(tag("span", formula(document["formula"]), class_="formula"), f" ({document['citation']}), {fit}")


def _covered(document: Document) -> str | None:
    """How many held-out runs lie inside their interval, as a sentence."""
    covered = document["held_out"] and coverage(document["held_out"])
    return covered and f"{covered[0].upper()}{covered[1:]}."


def compared(document: Document) -> Table | None:
    """The other laws that the study requested."""
    rows = [
        [
            ("law", row["law"]),
            ("AICc", row["reason"] if "reason" in row else f"{row['aicc']:.1f}"),
            ("weight", f"{row['weight']:.2f}" if "weight" in row else ""),
            ("largest held-out error", largest_error(row["held_out"]) if row.get("held_out") else ""),
        ]
        for row in document["compared"]
    ]
    return titled("Other laws of the same runs, the likeliest first.", rows)


def test(findings: Findings, document: Document) -> list[Block]:
    """Each held-out run next to what the law, fitted to the others, predicted for it."""
    narrower = "The narrower interval of the mean covers only the error of the fit."
    covered = _covered(document)
    sentences = "These runs took no part in the fit." + (f" {covered} {narrower}" if covered else "")
    return _present(sentences, held_out(document, findings.names), *figures(findings, TEST))


def task(findings: Findings, document: Document) -> list[Block]:
    """A task's score from the study's law of the loss: the law, the held-out runs, and what to doubt."""
    name = document["task"]
    if document["law"] is None:
        return [Heading(name), f"No law of the score: {document['reason']}."]
    test = _covered(document) or "No held-out run has a score."
    fit = f"its second step fitted to {plural(document['n'], 'finetuned run')}. {test}"
    second = {
        key: {name: value for name, value in document[key].items() if name.startswith(PREFIX)}
        for key in ("estimates", "intervals", "units")
    }
    doubts = [*document["not_identified"], *document["unreliable"]]
    return _present(
        Heading(name),
        _stated(document, fit),
        held_out(document, findings.names),
        fitted({**document, **second}),
        predictions(document),
        Items(doubts) if doubts else None,
        *figures(findings, [picture_of(name)]),
    )


def rows(findings: Findings) -> list[Block]:
    """The loss of each row relative to the first at each size, and each row's exponents where there is a law."""
    document, pairs = findings.document, advantages(findings)
    if not pairs:
        return []
    sizes, baseline = sorted({size for _, size in pairs}), findings.rows[0]["row"]
    rows = [
        [
            ("row", row),
            *((f"N = {short(size)}", scatter(pairs[row, size]) if (row, size) in pairs else "") for size in sizes),
        ]
        for row in dict.fromkeys(row for row, _ in pairs)
    ]
    caption = f"Loss over that of {baseline}, less one; ± the standard deviation between pairs of one size."
    return _present(exponents(document["rows"]) if "rows" in document else None, titled(caption, rows))


def exponents(rows: Mapping[str, Any]) -> Table | None:
    """The exponents of each row, and their differences from the first row's."""
    of_rows: dict[str, list[tuple[str, str]]] = {}
    for line in rows["exponents"]:
        of_rows.setdefault(line["row"], [("row", line["row"])]).extend(
            [
                (exponent(line["name"]), significant(line["estimate"], line["low"], line["high"])),
                ("interval", ends(line)),
                (f"less that of {rows['baseline']}", difference(line) if line["difference"] else ""),
            ]
        )
    has_compute = any(line["name"] == COMPUTE for line in rows["exponents"])
    compute = " γ = αβ/(α + β) is that of compute spent best." if has_compute else ""
    return titled(f"Exponents of each row’s law, with one floor for all.{compute}", list(of_rows.values()))


def runs(findings: Findings, record: Record, store: PurePosixPath | None) -> Table:
    """Every planned run."""
    cells = []
    for row in findings.rows:
        run, entry = row["run"], record["runs"][row["run"]]
        loss = row["loss"] if row["status"] == "finished" else None
        expected = None if loss is None else findings.predicted_loss(row)
        cells.append(
            [
                row["name"] if store is None else tag("a", row["name"], href=str(store / run / "spec.json")),
                entry["state"] or "",
                *(short(row[name]) for name in ("N", "D")),
                scientific(row["C"]),
                "" if loss is None else f"{loss:.4f}",
                "" if loss is None or expected is None else signed(loss / expected - 1),
                f"{row['lr']:g}",
                str(row["seed"]),
                entry["time"] or "",
                tag("a", "open", href=entry["address"]) if (entry["address"] or "").startswith("http") else "",
            ]
        )
    heads = ["run", "state", "N", "D", "C (FLOPs)", "loss", "off the law", "lr", "seed", "time", "W&B"]
    if not any(line[-1] for line in cells):
        heads, cells = heads[:-1], [line[:-1] for line in cells]
    caption = "Every planned run. “Off the law”: the observed loss over the law’s, less one."
    ids = [f"run-{row['run']}" for row in findings.rows]
    return Table(caption, heads, cells, (0, 1, 10), ids=ids)


def trust(findings: Findings, document: Document) -> list[Block]:
    """Every doubt in a sentence, the fit in figures, the residuals, and how the runs were trained."""
    noise, condition, tuned = document["seed_noise"], document["condition_number"], document.get("tuned")
    further = [document[key]["sentence"] for key in ("cooldowns", "tuned") if document.get(key)]
    doubts = [*document["not_identified"], *unreliable(document), *further]
    none = "Every parameter is identified, and the residuals give no reason to doubt the intervals."
    unmeasured = "not measured: no two runs differ in their seed alone"
    fit = {
        "starts that agree": f"{document['starts_agreeing']:.0%} of those refined reach one optimum",
        "objective": f"{document['objective_kind']}, {document['objective']:.4g}",
        "points, parameters": f"{document['n']}, {document['n'] - document['degrees_of_freedom']}",
        "scale of the residuals": percent(document["residual_scale"]),
        "scatter between seeds": unmeasured if noise is None else percent(noise),
        "condition number": "unbounded" if condition is None else f"{condition:.3g}",
    }
    setup = [Heading("Setup"), Pairs(dict(sorted(document["setup"].items())))] if document.get("setup") else []
    table = rungs(tuned) if tuned else None
    return _present(Items(doubts) if doubts else none, table, Pairs(fit), *figures(findings, DOUBT), *setup)


def rungs(tuned: Document) -> Table | None:
    """The best rate and batch of each rung, and what it loses by those that it was trained with."""
    rows = [
        [
            ("knob", KNOBS[rung["knob"]]),
            *((name, short(rung[name])) for name in "ND"),
            ("used", f"{rung['used']:g}"),
            ("best", "open" if rung["best"]["estimate"] is None else f"{rung['best']['estimate']:.3g}"),
            ("95% interval", ends(rung["best"])),
            ("lost", "open" if rung["left"]["estimate"] is None else percent(rung["left"]["estimate"])),
            ("95% interval", _ends_in_percent(rung["left"])),
        ]
        for rung in tuned["rungs"]
    ]
    return titled("What each rung loses by its learning rate and by its batch (in tokens).", rows)


def _ends_in_percent(interval: Mapping[str, Any]) -> str:
    shares = {end: None if interval[end] is None else 100 * interval[end] for end in ("low", "high")}
    return f"{ends(shares)} %"


def made(findings: Findings, record: Record) -> list[Block]:
    """The circumstances of a study's runs, the command that repeats it, and its question."""
    repeat = "This command trains what is missing and comes to the same points; with all runs done it only fits."
    return [
        Pairs(dict(sorted(record["circumstances"].items()))),
        repeat,
        Code(record["command"]),
        Heading("The study's question"),
        Code(study_yaml(findings, record["command"])),
    ]


def farther(findings: Findings, document: Document) -> list[Block]:
    """The loss, and each task's score, of the best run at 10 and 100 times the largest compute; and the next run."""
    horizon = document["horizon"]
    if horizon is None:
        return []
    scores = {task["task"]: task["horizon"]["predictions"] for task in findings.tasks if task.get("horizon")}
    rows = [
        [
            ("compute", f"{row['times']:g} ×"),
            ("C", scientific(row["C"])),
            *((name, short(row[name])) for name in "ND" if name in row),
            ("loss", f"{row['loss']:.4f}"),
            ("interval of the mean", ends(row["interval_mean"])),
            ("interval of a new run", ends(row["interval_run"]) + ("" if row["tested"] else " (untested)")),
            *((f"{task}, interval of a new run", _score(of_task[place])) for task, of_task in scores.items()),
        ]
        for place, row in enumerate(horizon["predictions"])
    ]
    caption = f"The compute-optimal run at times the compute of the largest, {scientific(horizon['largest'])} FLOPs."
    return _present(titled(caption, rows), f"{next_run(horizon)}.")


def _score(predicted: Mapping[str, Any]) -> str:
    return f"{predicted['accuracy']:.3f} {ends(predicted['interval_run'])}"
