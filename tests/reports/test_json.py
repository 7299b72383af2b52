"""docs/json.md and what the commands print under --json agree: every key that is printed is documented, every
documented key is printed, and keys are snake_case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage.studies import KINDS, curve_design, draw_curves
from scaling import fit_curves
from scaling.cli import SCHEMA, VERBS, main
from scaling.laws.curves import Curve
from scaling.ledger import Ledger
from scaling.studies import findings
from scaling.tables.results import Results, record, write_points
from scaling.tables.table import Downstream
from tests.docs.test_blocks import drawn_curves

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
SERVED = {"pull"}  # which need W&B's server
ABSENT = set() if find_spec("lm_eval") else {"evaluate-harness"}
SNAKE = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
Pattern = tuple[str, ...]


def sections() -> dict[tuple[str, ...], str]:
    """The text of each section by the commands whose documents it describes."""
    parts = (part.partition("\n") for part in PAGE.split("\n## ")[1:])
    return {tuple(re.findall(r"`scaling ([^`]+)`", title)): text for title, _, text in parts}


def documented(text: str) -> dict[Pattern, bool]:
    """The keys of a section's tables, each with whether it is deprecated."""
    keys = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            cell, meaning = (part.strip() for part in line.strip("|").split(" | ", 1))
            for key in re.findall(r"`([^`]+)`", cell):
                for one in spelled_out(key):
                    keys[split(one)] = meaning.startswith("deprecated")
    return keys


def spelled_out(key: str) -> Iterator[str]:
    parts = re.split(r"\{([^}]*)\}", key)
    choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return map("".join, product(*choices))


def split(key: str) -> Pattern:
    return tuple(part for part in re.sub(r"\[\]", ".[]", key).split(".") if part)


def printed(value: Any, above: Pattern = ()) -> Iterator[Pattern]:
    """The path of every key; `[]` is an item of a list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*above, key)
            yield from printed(inner, (*above, key))
    elif isinstance(value, list):
        for inner in value:
            yield from printed(inner, (*above, "[]"))


def matches(pattern: Pattern, path: Pattern) -> bool:
    """Whether a path is what the pattern says, or on the way to it."""
    for place, part in enumerate(path):
        if place == len(pattern):
            return False
        if pattern[place] == "**":
            return True
        if pattern[place] not in (part, "*"):
            return False
    return True


def reaches(pattern: Pattern, path: Pattern) -> bool:
    """Whether a path is the whole of the pattern."""
    whole = pattern[:-1] if pattern[-1] == "**" else pattern
    return len(path) >= len(whole) and matches(whole, path[: len(whole)])


STUDY = """question: x
base: decoder
set: {data: synthetic, size.vocabulary: null, schedule.warmup: 0, train.batch: 8}
grid: {size: [{width: 8, layers: 1, heads: 1}, {width: 16, layers: 1, heads: 1}], train.tokens: [20k, 40k, 60k]}
law: chinchilla
"""
TABLE = """base: decoder
data: synthetic
size: {width: 8, layers: 1, heads: 1, vocabulary: null, length: 16}
train: {tokens: 2k, batch: 8}
evaluate: {points: 2, windows: 8}
table: {title: x, measures: [sequential, path], published: x.csv}
rows: {A: {}, B: {model.position: NoPosition}}
"""
TASK = {
    "kind": "Task",
    "text": "{text}",
    "labels": ["a", "b"],
    "tokenizer": "Byte",
    "files": {"train": "class.jsonl", "validation": "class.jsonl"},
}
HARNESS = """task: choose
dataset_path: json
dataset_kwargs: {data_files: {test: class.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: [a, b]
doc_to_target: label
"""
WRITE = """task: write
output_type: generate_until
doc_to_target: label
doc_to_choice: null
metric_list: [{metric: exact_match}]
"""


def drawn_few(seed: int) -> list[Curve]:
    return draw_curves(curve_design(), KINDS["trunks differ most"], np.random.default_rng(seed))


@pytest.fixture(scope="module")
def documents(study, made_study, tmp_path_factory):
    """What each command prints under --json, several documents where one has not all of its keys."""
    folder = tmp_path_factory.mktemp("json")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    patch.setenv("SCALING_DATA", str(folder / "prepared"))
    patch.setattr(findings, "FIGURES", ())  # which take as long as all the rest
    found: dict[str, list[Any]] = {}

    def run(name: str, *words: str) -> Any:
        with pytest.MonkeyPatch.context() as capture:
            lines: list[str] = []
            capture.setattr("builtins.print", lambda *what, file=None, **_: None if file else lines.append(*what))
            assert main([*words, "--json"]) == 0, words
        document = json.loads("".join(lines))
        if isinstance(document, dict):
            assert document.pop("schema") == SCHEMA, words
        found.setdefault(name, []).append(document)
        return found[name][-1]

    (folder / "text.txt").write_text("\n\n".join(f"A line of text, the {number}th of many." for number in range(300)))
    (folder / "study.yaml").write_text(STUDY)
    (folder / "table.yaml").write_text(TABLE)
    (folder / "x.csv").write_text("row,heading,loss\nA,Rows,1.0\nB,Rows,2.0\n")
    text = ["data.corpus.files=text.txt", "data.tokenizer.vocabulary=270", "data.validation=0.2"]
    try:
        for action in ("prepare", "show"):
            run(f"data {action}", "data", action, "files", *text, "size.length=64")
        run("data show", "data", "show", "synthetic", "--windows", "1")
        run("data list", "data", "list")
        short = ["decoder", "train.tokens=4k", "train.batch=8", "size.vocabulary=null", "evaluate.windows=8"]
        one = run("train", "train", *short)["run"]
        domains = "{a: synthetic, b: {kind: Synthetic, seed: 5}}"
        run("train", "train", *short, f"data={{kind: Mixture, domains: {domains}, shares: {{a: 1, b: 1}}}}")
        long = ["size.length=64", "train.checkpoint_every=4"]
        pretrained = run("train", "train", *short, "data=files", *text, *long)["run"]
        for answer, metric in (("class", "Accuracy"), ("text", "ExactMatch")):
            (folder / f"{answer}.yaml").write_text(json.dumps({"data": {**TASK, "answer": answer, "metric": metric}}))
            (folder / "class.jsonl").write_text(
                "".join(f'{{"text": "{word}", "label": "{word}"}}\n' for word in "abab")
            )
            budget = ["trainer.max_steps=2", "schedule.warmup=0", "train.parts=head"]
            tuned = run("finetune", "finetune", pretrained, str(folder / f"{answer}.yaml"), *budget)["run"]
        run("evaluate", "evaluate", tuned)
        run("evaluate-corpus", "evaluate-corpus", pretrained, "--limit", "3")
        run("evaluate-options", "evaluate-options", pretrained, str(folder / "class.yaml"), "--shots", "1")
        group = "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
        for name, text_of_task in (("choose", HARNESS), ("group", f"group: all\ntask: [choose, write]\n{group}")):
            (folder / f"{name}.yaml").write_text(text_of_task)
        (folder / "write.yaml").write_text(f"include: choose.yaml\n{WRITE}")
        if not ABSENT:
            group_file = str(folder / "group.yaml")
            run("evaluate-harness", "evaluate-harness", pretrained, group_file, "max_gen_toks=2")
        early = ["start.step=4", "train.patience=3"]  # gc keeps that checkpoint, and the result has a best step
        tuned_class = run("finetune", "finetune", pretrained, str(folder / "class.yaml"), *budget, *early)["run"]
        run("evaluate", "evaluate", tuned_class)
        for each in (tuned, tuned_class):
            run("predict", "predict", each, "class.jsonl")
        run("tasks", "tasks")
        run("runs", "runs")
        run("show", "show", one)
        run("diff", "diff", "gpt2", "llama")
        adaptive = ["--adaptive", "E ± 0.05"]
        for words in (["quickstart", "--on", "H100", "--price", "2"], ["study.yaml"], ["quickstart", *adaptive]):
            run("plan", "plan", *words)
        run("plan", "plan", "study.yaml", *adaptive)
        ledger, *_ = study
        run("watch", "watch", "small", f"runs={ledger.root}")
        run("submit", "submit", "study.yaml", "--stop")
        run("report", "report", "small", f"runs={ledger.root}")
        rows = "  row: [Self-Attention, Recurrent]\n  size:"
        changes = {"decoder": "table/layer_types", "  size:\n": f"{rows}\n", "chinchilla": "power_law_d"}
        several = tmp_path_factory.mktemp("rows")
        made_study(several, changes)
        run("report", "report", "small", f"runs={several / 'runs'}")
        compared = tmp_path_factory.mktemp("compared")
        made_study(
            compared,
            {
                "[2k, 4k, 8k]": "[2k, 3k, 4k, 8k]",
                "law: chinchilla": "law: [chinchilla, power_law_d]\ntasks: [rank_tags]\ntune: true",
            },
        )
        run("report", "report", "small", f"runs={compared / 'runs'}")
        none = tmp_path_factory.mktemp("none")
        made_study(none, {"law: chinchilla": "law: chinchilla"}, lambda place: "finished" if place < 2 else None)
        known = str(ROOT / "examples" / "own_law" / "points.csv")
        law, there = ["--points", known, "--law", "power_law_floor_d"], f"runs={none / 'runs'}"
        predicted = run("predict-run", "predict-run", *short[:3], *short[3:], "seed=5", *law, there)
        with Ledger.open(none / "runs").claim(predicted["run"]) as attempt:
            attempt.finish("finished", {"loss": predicted["predicted"], "step": 1, "tokens": 8, "circumstances": {}})
        run("predictions", "predictions", there)
        run("report", "report", "small", there)
        points = str(ledger.root / "studies" / "small" / "report" / "points.csv")
        targets = ["--target", "N=1e5", "D=1e5", "--target", "C=1e10", "served=1e4"]
        run("fit", "fit", points, *targets, "--figures", "figures")
        many = str(ROOT / "examples" / "own_law" / "points.csv")
        run("fit", "fit", many, "--law", "auto", "--intervals", "none")
        run("fit", "fit", many, "--law", "power_law_floor_d", "--hold-out", "largest", "--intervals", "none")
        budgets = write_budgets(Path("budgets.csv"))
        run("fit", "fit", budgets, "--law", "isoflop_parabola")
        run("fit", "fit", budgets, "--intervals", "t", "--target", "C=1e22", "--hold-out", "N")
        better = pd.read_csv(budgets)
        better.assign(loss=0.98 * better["loss"]).to_csv("better.csv", index=False)
        run("compare", "compare", budgets, "better.csv", "--at-least", "1.01")
        run("mixture", "mixture", str(ROOT / "docs" / "results" / "mixture" / "points.csv"))
        steps = ["--law", "power_law_floor_d,task_linear", "--map", "bits_per_byte=0.3*loss^1.1"]
        run("fit", "fit", many, *steps, "--intervals", "none")
        curves = drawn_curves(5).assign(held_out=lambda rows: (rows["N"] == rows["N"].max()).astype(int))
        curves.to_csv("curves.csv", index=False)
        run("fit-curves", "fit-curves", "curves.csv", "--law", "annealed_curve")
        begun = [curve.first(0.6) if curve.run != curve.trunk and curve.N < 1e5 else curve for curve in drawn_few(5)]
        found["fit-curves"].append(json.loads(json.dumps(fit_curves(begun, law="annealed_curve").to_json())))
        run("table", "table", "table.yaml", "--counts")
        run("table", "table", "table.yaml")
        scored = [
            record(row, seed, "0", "finished", early=3.0, loss=2.0, cola_score=0.1 * seed)
            for row in "AB"
            for seed in (0, 1)
        ]
        column = Downstream("cola", {"cola": {}}, metric="mcc")
        write_points(Results(("one",), (), tuple(scored), downstream=(column,)), folder / "scores.csv")
        run("table", "table", "table.yaml", "--from", "scores.csv")
        kept = str(ROOT / "docs" / "results" / "narang2021" / "points.csv")
        run("decide", "decide", "narang2021_cpu", "--from", kept)
        run("inspect", "inspect", "decoder", "size=tiny")
        run("inspect", "inspect", "decoder", "size=tiny", "train.checkpointing=blocks")
        run("inspect --lengths", "inspect", "decoder", "size=tiny", "--lengths", "64", "128")
        run("explain", "explain")
        names = "Gated channel train size law chinchilla study sweep table held_out method plan quickstart"
        for name in names.split():
            run("explain", "explain", name)
        run("sweep", "sweep", str(ROOT / "sweeps" / "learning_rate.yaml"), "--dry-run")
        run("generate", "generate", one, "--prompt", "1 2", "--steps", "2")
        encoder = run("train", "train", "encoder", *short[1:], "data=files", *text)["run"]
        run("train", "train", "encoder_decoder", *short[1:])
        run("generate", "generate", encoder, "--prompt", "a [MASK]")
        run("look", "look", one, "1 2")
        run("look", "look", encoder, "a [MASK]")
        run("landscape", "landscape", one, "--side", "3", "--windows", "8")
        run("probe", "probe", one, "ranks", "--tokens", "500")
        run("export", "export", one, "--to", "exported")
        run("import", "import", "exported", "--to", "imported")
        run("gc", "gc")
        run("gc", "gc", "--weights")
        run("doctor", "doctor")
    finally:
        patch.undo()
    return found


def write_budgets(path: Path) -> str:
    """Seven sizes at each of four budgets, enough for every law of N and D."""
    C, step = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e18, 1e21, 4), np.linspace(-1.5, 1.5, 7)))
    N = 0.1 * C**0.5 * np.exp(step)
    loss = 1.7 + 400 * N**-0.34 + 900 * (C / 6 / N) ** -0.3 + 1e-3 * np.sin(np.arange(28))
    rows = zip(N, C / 6 / N, C, loss, strict=True)
    path.write_text("N,D,C,loss\n" + "".join(",".join(map(repr, map(float, row))) + "\n" for row in rows))
    return str(path)


SECTIONS = sections()
SEEN = [commands for commands in SECTIONS if not (SERVED | ABSENT) & {*commands}]


def paths(commands: tuple[str, ...], documents: dict[str, list[Any]]) -> set[Pattern]:
    return {path for name in commands for document in documents.get(name, ()) for path in printed(document)}


def test_every_command_with_json_has_a_section():
    assert {name.partition(" --")[0] for commands in SECTIONS for name in commands} == set(VERBS)


@pytest.mark.parametrize("commands", SECTIONS, ids=" ".join)
def test_what_is_printed_is_documented_and_what_is_documented_is_printed(commands, documents):
    keys, seen = documented(SECTIONS[commands]), paths(commands, documents)
    parts = {part for key, deprecated in keys.items() if not deprecated for part in key}
    assert not [part for part in parts - {"*", "**", "[]"} if not SNAKE.fullmatch(part)]
    if commands in SEEN:
        assert sorted(".".join(key) for key in keys if not any(reaches(key, path) for path in seen)) == []
        known = [*keys, *(documented(SECTIONS["fit",]) if "report" in commands else ())]
        assert sorted(".".join(path) for path in seen if not any(matches(key, path) for key in known)) == []
