"""The sections of a report, each a list of blocks: the law, its test, rows compared, the runs, and what to doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from scaling.base.errors import plural
from scaling.base.markup import Block, Code, Heading, Items, Pairs, ends, formula, percent, signed, significant
from scaling.base.printing import Table, join, scientific, short, tag
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
from scaling.studies.findings import Findings, TaskFindings

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
    document = findings.document or {}
    name, entropy = floor(document) if document else None, document.get("entropy")
    interval = document.get("intervals", {}).get(name)
    if interval is not None and name in document["unidentified"]:
        reasons = document["not_identified"]
        reason = next((why for why in reasons if why.startswith(f"{name} ")), reasons[0])
        yield "Irreducible loss", NOT_IDENTIFIED, [reason, tried(document)]
    elif interval is not None:
        figure = significant(interval["estimate"], interval["low"], interval["high"])
        entropy_text = [] if entropy is None else [f"the known entropy is {entropy['known']:.4f}"]
        yield "Irreducible loss", figure, [f"nats per token, {interval['level']:.0%} {ends(interval)}", *entropy_text]
    if tested := document.get("held_out"):
        covered = coverage(tested)
        remarks = ([f"largest of {tested['n']} runs"] if tested["n"] > 1 else []) + ([covered] if covered else [])
        yield "Error on held-out loss", largest_error(tested), ["; ".join(remarks)]
    if entropy is not None and entropy["excess_errors"]:
        remark = "of the held-out loss above the entropy, the harder figure"
        yield "Error of the excess", signed(max(entropy["excess_errors"], key=abs)), [remark]
    yield "Compute", record["compute"], [record["effort"]]


def counts(findings: Findings) -> str:
    """Finished, held out, diverged and still to do, in one line."""
    states = [row["status"] for row in findings.rows]
    done = {state: states.count(state) for state in RESULTS}
    beside = states.count("beside")
    left, held = len(states) - sum(done.values()) - beside, sum(bool(row["held_out"]) for row in findings.rows)
    parts = [f"{done.pop('finished')} finished"] + ([f"{held} of them held out"] if held and not left else [])
    parts += [f"{count} {word}" for word, count in {**done, "beside them": beside}.items() if count]
    return ", ".join(parts + ([f"{left} not done"] if left else []))


def law(findings: Findings, document: Document) -> list[Block]:
    """The formula, what it was fitted to, what its letters count, its parameters and its predictions."""
    definitions = document["points"]["definitions"]
    planned = plural(len(findings.rows), "planned run")
    stated = join(
        tag("span", formula(document["formula"]), class_="formula"),
        f" ({document['citation']}), fitted to {document['n']} of {planned}: {counts(findings)}.",
    )
    counted = "; ".join(f"{name}: {definitions[name]}" for name in MEANINGS if name in definitions)
    pictures = figures(findings, of_law(findings))
    tables = [fitted(document), compared(document), predictions(document), optima(document)]
    return _present(stated, f"{counted}." if counted else None, *pictures[:1], *tables, *pictures[1:])


def _present(*blocks: Block | None) -> list[Block]:
    return [block for block in blocks if block is not None]


def compared(document: Document) -> Table | None:
    """The other laws that the study requested."""
    rows = [
        (row["law"], row["reason"], "", "")
        if "reason" in row
        else (
            row["law"],
            f"{row['aicc']:.1f}",
            f"{row['weight']:.2f}",
            "" if row["held_out"] is None else largest_error(row["held_out"]),
        )
        for row in document["compared"]
    ]
    heads = ("law", "AICc", "weight", "largest held-out error")
    return Table("Other laws of the same runs, the likeliest first.", heads, rows) if rows else None


def test(findings: Findings, document: Document) -> list[Block]:
    """Each held-out run next to what the law, fitted to the others, predicted for it."""
    sentences = "These runs took no part in the fit."
    if covered := coverage(document["held_out"]):
        narrower = "The narrower interval of the mean covers only the error of the fit."
        sentences += f" {covered[0].upper()}{covered[1:]}. {narrower}"
    return _present(sentences, held_out(document, findings.names), *figures(findings, TEST))


def task(findings: Findings, scores: TaskFindings) -> list[Block]:
    """A task's score from the study's law of the loss: the law, the held-out runs, and what to doubt."""
    document = scores.document
    if document is None:
        return [Heading(scores.task), f"No law of the score: {scores.reason}."]
    covered = coverage(document["held_out"]) if document["held_out"] else None
    test = f"{covered[0].upper()}{covered[1:]}." if covered else "No held-out run has a score."
    law = tag("span", formula(document["formula"]), class_="formula")
    fit = f" ({document['citation']}), its second step fitted to {plural(document['n'], 'finetuned run')}. {test}"
    second = {
        key: {name: value for name, value in document[key].items() if name.startswith(PREFIX)}
        for key in ("estimates", "intervals", "units")
    }
    doubts = [*document["not_identified"], *document["unreliable"]]
    return _present(
        Heading(scores.task),
        join(law, fit),
        held_out(document, findings.names),
        fitted({**document, **second}),
        predictions(document),
        Items(doubts) if doubts else None,
        *figures(findings, filter(None, [scores.picture])),
    )


def rows(findings: Findings) -> list[Block]:
    """The loss of each row relative to the first at each size, and each row's exponents where there is a law."""
    document, pairs = findings.document or {}, advantages(findings)
    if not pairs:
        return []
    sizes, rows = sorted({size for _, size in pairs}), dict.fromkeys(row for row, _ in pairs)
    cells = [[row, *(scatter(pairs[row, size]) if (row, size) in pairs else "" for size in sizes)] for row in rows]
    baseline = findings.rows[0]["row"]
    caption = f"Loss over that of {baseline}, less one; ± the standard deviation between pairs of one size."
    table = Table(caption, ("row", *(f"N = {short(size)}" for size in sizes)), cells)
    return [*([exponents(document["rows"])] if "rows" in document else []), table]


def exponents(rows: Mapping[str, Any]) -> Table:
    """The exponents of each row, and their differences from the first row's."""
    lines = {(line["row"], line["name"]): line for line in rows["exponents"]}
    kinds = list(dict.fromkeys(name for _, name in lines))
    heads = [
        "row",
        *(part for name in kinds for part in (exponent(name), "interval", f"less that of {rows['baseline']}")),
    ]
    cells = {row: [row] for row, _ in lines}
    for (row, _), line in lines.items():
        value = significant(line["estimate"], line["low"], line["high"])
        cells[row] += [value, ends(line), difference(line) if line["difference"] else ""]
    compute = " γ = αβ/(α + β) is that of compute spent best." if COMPUTE in kinds else ""
    return Table(f"Exponents of each row’s law, with one floor for all.{compute}", heads, list(cells.values()))


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
    doubts = [*document["not_identified"], *unreliable(document)]
    none = "Every parameter is identified, and the residuals give no reason to doubt the intervals."
    noise, condition = document["seed_noise"], document["condition_number"]
    if cooldowns := document.get("cooldowns"):
        doubts.append(cooldowns["sentence"])
    if tuned := document.get("tuned"):
        doubts.append(tuned["sentence"])
    fit = {
        "starts that agree": f"{document['starts_agreeing']:.0%} of those refined reach one optimum",
        "objective": f"{document['objective_kind']}, {document['objective']:.4g}",
        "points, parameters": f"{document['n']}, {document['n'] - document['degrees_of_freedom']}",
        "scale of the residuals": percent(document["residual_scale"]),
        "scatter between seeds": "not measured: no two runs differ in their seed alone"
        if noise is None
        else percent(noise),
        "condition number": "unbounded" if condition is None else f"{condition:.3g}",
    }
    setup: list[Block] = (
        [Heading("Setup"), Pairs(dict(sorted(document["setup"].items())))] if document.get("setup") else []
    )
    residuals = figures(findings, DOUBT)
    return [Items(doubts) if doubts else none, *(rungs(tuned) if tuned else []), Pairs(fit), *residuals, *setup]


def rungs(tuned: Document) -> list[Block]:
    """The best rate and batch of each rung, and what it loses by those that it was trained with."""
    cells = []
    for rung in tuned["rungs"]:
        left = {end: None if rung["left"][end] is None else 100 * rung["left"][end] for end in ("low", "high")}
        best, lost = rung["best"]["estimate"], rung["left"]["estimate"]
        cells.append(
            [
                *(KNOBS[rung["knob"]], short(rung["N"]), short(rung["D"]), f"{rung['used']:g}"),
                *("open" if best is None else f"{best:.3g}", ends(rung["best"])),
                *("open" if lost is None else percent(lost), f"{ends(left)} %"),
            ]
        )
    heads = ["knob", "N", "D", "used", "best", "95% interval", "lost", "95% interval"]
    return [Table("What each rung loses by its learning rate and by its batch (in tokens).", heads, cells)]


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
    horizon = document.get("horizon")
    if horizon is None:
        return []
    heads = ["compute", "C", *(name for name in "ND" if name in horizon["predictions"][0])]
    heads += ["loss", "interval of the mean", "interval of a new run"]
    scores = {
        each.task: each.document["horizon"]["predictions"]
        for each in findings.tasks
        if each.document and each.document.get("horizon")
    }
    heads += [f"{task}, interval of a new run" for task in scores]
    cells = []
    for place, row in enumerate(horizon["predictions"]):
        of_tasks = (predictions[place] for predictions in scores.values())
        further = [f"{each['accuracy']:.3f} {ends(each['interval_run'])}" for each in of_tasks]
        sizes = [short(row[name]) for name in "ND" if name in row]
        of_mean, of_run = (ends(row[f"interval_{of}"]) for of in ("mean", "run"))
        mark = "" if row["tested"] else " (untested)"
        times = f"{row['times']:g} ×"
        cells.append([times, scientific(row["C"]), *sizes, f"{row['loss']:.4f}", of_mean, of_run + mark, *further])
    caption = f"The compute-optimal run at times the compute of the largest, {scientific(horizon['largest'])} FLOPs."
    return [Table(caption, heads, cells), f"{next_run(horizon)}."]
