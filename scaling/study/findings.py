"""Findings: finished runs as points, the law that a question asks for, its test on held-out runs, and the figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.ledger import Ledger
from scaling.study.plan import Plan, Run
from scaling.study.question import Question

FIGURES = (".pdf", ".png", ".svg", ".html")


def rows(ledger: Ledger, found: Plan) -> list[dict[str, Any]]:
    """One row a planned run, with every definition of N and C; runs that are not finished have a status and no loss."""
    return [_row(ledger, one) for one in found.runs]


def _row(ledger: Ledger, one: Run) -> dict[str, Any]:
    experiment, result = one.experiment, ledger.result(one.run)
    cost, tokens = experiment.cost, experiment.tokens(experiment.steps)
    row = {
        "run": one.run,
        "name": one.name,
        "status": "missing" if result is None else result["outcome"],
        "held_out": int(one.held_out),
        "N": cost.parameters_non_embedding,
        "D": tokens,
        "C": cost.flops_train_per_token * tokens,
        "loss": None if result is None else result["loss"],
        "N_definition": "without embeddings",
        "D_definition": "tokens read, repeats counted",
        "loss_definition": "held-out cross-entropy, nats a token",
        "C_definition": "matrix products as they run, forward and backward",
        "N_total": cost.parameters,
        **{f"C_{name}": per_token * tokens for name, per_token in cost.approximations.items()},
        "S": experiment.steps,
        "B": experiment.size.size(0) * experiment.row_tokens,
        "lr": experiment.optimizer.lr,
        "seed": experiment.seed,
        "width": cost.shape.width,
        "depth": cost.shape.layers,
        "tokenizer": experiment.batches.source.fingerprint,
        "validation": experiment.held_out.fingerprint,
    }
    if experiment.held_out.entropy is not None:
        row["entropy"] = experiment.held_out.entropy
    return row


def write_points(table: list[dict[str, Any]], path: Path) -> None:
    """The table as CSV: the same bytes for the same runs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    atomic.write(path, text.getvalue())


def fitted(question: Question, points: Path, folder: Path) -> dict[str, Any]:
    """The account of the law over the points, written beside them as fit.json with its figures."""
    from scaling.law import fit, named
    from scaling.law.account import account
    from scaling.law.picture import save
    from scaling.law.picture.album import of_law
    from scaling.law.reading import read

    table = replace(read(points), source=f"study {question.name}")
    held = table.numbers("held_out") > 0
    train, test = table.hold_out(held) if held.any() else (table, None)
    found = fit(named(question.law), train)
    targets = [dict(question.target)] if question.target else []
    stated = {"hypothesis": question.question, **question.define}
    document = account(found, held_out=test, targets=targets, stated=stated)
    document["question"] = question.question
    entropies = set(table.numbers("entropy").tolist()) if "entropy" in table else set()
    if len(entropies) == 1:
        document["entropy"] = _against(document, entropies.pop())
    atomic.write_json(folder / "fit.json", document)
    for name, picture in of_law(found, test).items():
        for kind in FIGURES:
            save(picture, folder / (name + kind))
    return document


def _against(document: Mapping[str, Any], entropy: float) -> dict[str, Any]:
    """The irreducible loss beside the entropy that the source is known to have, and how far its excess was foretold."""
    told: dict[str, Any] = {"known": entropy}
    interval = document["intervals"].get("E")
    if interval is not None:
        low, high = interval["low"], interval["high"]
        told["contained"] = (low is None or low <= entropy) and (high is None or entropy <= high)
    tested = document.get("held_out") or {}
    told["excess_errors"] = [
        (point["predicted"] - point["loss"]) / (point["loss"] - entropy) for point in tested.get("points", ())
    ]
    return told
