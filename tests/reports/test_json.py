"""docs/json.md and --json agree: every printed key is documented, every documented one printed, in snake_case."""

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
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.studies.question import read as question
from scaling.tables.results import Results, record, write_points
from scaling.tables.table import Downstream, read
from scaling.verbs.command_line import SCHEMA, VERBS, main
from tests.docs.test_blocks import drawn_curves
from tests.reports.conftest import SMALL, make_study
from tests.studies.test_study import finish

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
# The first needs W&B's server, the second a library.
UNSEEN = {"pull", *([] if find_spec("lm_eval") else ["evaluate-harness"])}
SNAKE = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
Pattern = tuple[str, ...]
# The text of each section by the commands whose documents it describes.
PARTS = (part.partition("\n") for part in PAGE.split("\n## ")[1:])
SECTIONS = {tuple(re.findall(r"`scaling ([^`]+)`", title)): text for title, _, text in PARTS}


def documented(text: str) -> set[Pattern]:
    """The keys of a section's tables: `a.{b,c}` are two, and `[]` is an item of a list."""
    keys = set()
    for key in re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE))):
        parts = re.split(r"\{([^}]*)\}", key)
        choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
        spelled_out = map("".join, product(*choices))
        keys |= {tuple(filter(None, one.replace("[]", ".[]").split("."))) for one in spelled_out}
    return keys


def printed(value: Any, above: Pattern = ()) -> Iterator[Pattern]:
    """The path of every key; `[]` is an item of a list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*above, key)
            yield from printed(inner, (*above, key))
    elif isinstance(value, list):
        for inner in value:
            yield from printed(inner, (*above, "[]"))


def matches(pattern: Pattern, path: Pattern) -> tuple[bool, bool]:
    """Whether a path is what the pattern says, or on the way to it; and whether it has the whole of the pattern."""
    whole = pattern[: pattern.index("**")] if "**" in pattern else pattern
    agree = all(key in (part, "*") for key, part in zip(whole, path))
    return agree and (len(path) <= len(whole) or "**" in pattern), agree and len(path) >= len(whole)


SUPPOSED = "suppose: {E: 1.5, A: 5, alpha: 0.5, B: 30, beta: 0.6}\n"
TABLE = """base: decoder
data: synthetic
size: {width: 8, layers: 1, heads: 1, vocabulary: null, length: 16}
train: {tokens: 2k, batch: 8}
evaluate: {points: 2, windows: 8}
table: {title: x, measures: [sequential, path], published: x.csv}
rows: {A: {}, B: {model.position: NoPosition}}
"""
TASK = """data: {{kind: Task, text: "{{text}}", labels: [a, b], tokenizer: Byte, answer: {}, metric: {},
  files: {{train: class.jsonl, validation: class.jsonl}}}}
"""
HARNESS = """{task: choose, dataset_path: json, dataset_kwargs: {data_files: {test: class.jsonl}}, test_split: test,
  output_type: multiple_choice, doc_to_text: "{{text}}", doc_to_choice: [a, b], doc_to_target: label}
"""
WRITE = """{include: choose.yaml, task: write, output_type: generate_until, doc_to_target: label, doc_to_choice: null,
  metric_list: [{metric: exact_match}]}
"""
GROUP = "group: all\ntask: [choose, write]\naggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
POINTS = str(ROOT / "examples" / "own_law" / "points.csv")
SHORT = ["train.tokens=4k", "train.batch=8", "size.vocabulary=null", "evaluate.windows=8"]
TEXT = ["files", "data.corpus.files=text.txt", "data.tokenizer.vocabulary=270", "data.validation=0.2"]


def write_files(folder: Path) -> None:
    texts = {
        "text.txt": "\n\n".join(f"A line of text, the {number}th of many." for number in range(300)),
        "study.yaml": SMALL.read_text(),
        "known.yaml": SMALL.read_text() + SUPPOSED,
        "table.yaml": TABLE,
        "x.csv": "row,heading,loss\nA,Rows,1.0\nB,Rows,2.0\n",
        "class.yaml": TASK.format("class", "Accuracy"),
        "words.yaml": TASK.format("text", "ExactMatch"),
        "class.jsonl": "".join(f'{{"text": "{word}", "label": "{word}"}}\n' for word in "abab"),
        "choose.yaml": HARNESS,
        "write.yaml": WRITE,
        "group.yaml": GROUP,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    scores = [
        record(row, seed, "0", "finished", early=3.0, loss=2.0 + 0.1 * (row == "B"), cola_score=0.1 * seed)
        for row in "AB"
        for seed in (0, 1)
    ]
    column = Downstream("cola", {"cola": {}}, metric="mcc")
    results = Results(read(str(folder / "table.yaml")), ("one",), (), tuple(scores), (column,))
    write_points(results, folder / "scores.csv")
    # Seven sizes at each of four budgets, enough for every law of N and D.
    C, step = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e18, 1e21, 4), np.linspace(-1.5, 1.5, 7)))
    N = 0.1 * C**0.5 * np.exp(step)
    loss = 1.7 + 400 * N**-0.34 + 900 * (C / 6 / N) ** -0.3 + 1e-3 * np.sin(np.arange(28))
    budgets = pd.DataFrame({"N": N, "D": C / 6 / N, "C": C, "loss": loss})
    budgets.to_csv(folder / "budgets.csv", index=False)
    budgets.assign(loss=0.98 * budgets["loss"]).to_csv(folder / "better.csv", index=False)
    curves = drawn_curves(5).assign(held_out=lambda rows: (rows["N"] == rows["N"].max()).astype(int))
    curves.to_csv(folder / "curves.csv", index=False)


def test_each_command_has_a_section_and_what_is_printed_and_what_is_documented_are_the_same(tmp_path_factory):
    """A command is given several times where one document has not all of its keys."""
    folder, found = tmp_path_factory.mktemp("json"), dict[str, list[Any]]()
    write_files(folder)

    def run(name: str, *words: str) -> Any:
        with pytest.MonkeyPatch.context() as capture:
            lines: list[str] = []
            capture.setattr("builtins.print", lambda *what, file=None, **_: None if file else lines.append(*what))
            assert main([*name.split(), *words, "--json"]) == 0, (name, words)
        document = json.loads("".join(lines))
        if isinstance(document, dict):
            assert document.pop("schema") == SCHEMA, words
        found.setdefault(name, []).append(document)
        return document

    def study(name: str, changes: dict[str, str], outcome: Any = lambda _: "finished") -> str:
        ledger, _ = make_study(tmp_path_factory.mktemp(name), changes, outcome)
        run("report", "small", f"runs={ledger.root}")
        return f"runs={ledger.root}"

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SCALING_DATA", str(folder / "prepared"))
        run("data prepare", *TEXT, "size.length=64")
        run("data show", *TEXT, "size.length=64")
        run("data show", "synthetic", "--windows", "1")
        run("data list")
        one = run("train", "decoder", *SHORT)["run"]
        domains = "domains: {a: synthetic, b: {kind: Synthetic, seed: 5}}, shares: {a: 1, b: 1}"
        run("train", "decoder", *SHORT, f"data={{kind: Mixture, {domains}}}")
        text = [f"data={TEXT[0]}", *TEXT[1:]]
        pretrained = run("train", "decoder", *SHORT, *text, "size.length=64", "train.checkpoint_every=4")["run"]
        budget = ["trainer.max_steps=2", "schedule.warmup=0", "train.parts=head"]
        written = run("finetune", pretrained, "words.yaml", *budget)["run"]
        # gc keeps the checkpoint that it starts from, and the result has a best step.
        chosen = run("finetune", pretrained, "class.yaml", *budget, "start.step=4", "train.patience=3")["run"]
        for tuned in (written, chosen):
            run("evaluate", tuned)
            run("predict", tuned, "class.jsonl")
        run("evaluate-corpus", pretrained, "--limit", "3")
        run("evaluate-options", pretrained, "class.yaml", "--shots", "1")
        if "evaluate-harness" not in UNSEEN:
            run("evaluate-harness", pretrained, "group.yaml", "max_gen_toks=2")
        for name in ("tasks", "runs", "doctor", "explain"):
            run(name)
        run("show", one)
        run("diff", "gpt2", "llama")
        for words in (["known.yaml", "--on", "H100", "--price", "2"], ["study.yaml"]):
            run("plan", *words)
            run("plan", words[0], "--adaptive", "E ± 0.1")
        asked = plan(question("study.yaml"))
        enter(asked.ledger(), asked)
        run("submit", "study.yaml", "--stop")
        rows = "  row: [Self-Attention, Recurrent]\n  size:"
        study("rows", {"decoder": "table/layer_types", "  size:\n": f"{rows}\n", "chinchilla": "power_law_d"})
        laws = "law: [chinchilla, power_law_d]\ntasks: [rank_tags]\ntune: true"
        compared = study("compared", {"[2k, 4k, 8k]": "[2k, 3k, 4k, 8k]", "law: chinchilla": laws})
        run("watch", "small", compared)
        points = f"{compared.removeprefix('runs=')}/studies/small/report/points.csv"
        run("fit", points, "--law", "power_law_d", "--intervals", "none")  # runs that share trunks
        there = study("none", {"law: chinchilla": ""}, lambda place: "finished" if place < 2 else None)
        law = ["--points", POINTS, "--law", "power_law_floor_d"]
        predicted = run("predict-run", "decoder", *SHORT, "seed=5", *law, there)
        finish(Ledger.open(there.removeprefix("runs=")), predicted["run"], predicted["predicted"])
        run("predictions", there)
        run("report", "small", there)
        targets = ["--target", "N=1e12", "D=1e10", "--target", "C=1e22", "served=1e12", "--hold-out", "N"]
        run("fit", "budgets.csv", "--intervals", "t", *targets)
        run("fit", "budgets.csv", "--law", "isoflop_parabola", "--figures", "figures")
        fast = ["--intervals", "none"]
        run("fit", POINTS, "--law", "auto", *fast)
        run("fit", POINTS, "--law", "power_law_floor_d", "--hold-out", "largest", *fast)
        run("fit", POINTS, "--law", "power_law_floor_d,task_linear", "--map", "bits_per_byte=0.3*loss^1.1", *fast)
        run("compare", "budgets.csv", "better.csv", "--at-least", "1.01")
        run("mixture", str(ROOT / "docs" / "results" / "mixture" / "points.csv"))
        run("fit-curves", "curves.csv", "--law", "annealed_curve")
        drawn = draw_curves(curve_design(), KINDS["trunks differ most"], np.random.default_rng(5))
        begun = [curve.first(0.6) if curve.run != curve.trunk and curve.N < 1e5 else curve for curve in drawn]
        found["fit-curves"].append(json.loads(json.dumps(fit_curves(begun, law="annealed_curve").to_json())))
        for words in (["--counts"], [], ["--from", "scores.csv"]):
            run("table", "table.yaml", *words)
        run("decide", "table.yaml", "--from", "scores.csv")
        run("inspect", "decoder", "size=tiny", "train.checkpointing=blocks")
        found["inspect --lengths"] = [run("inspect", "decoder", "size=tiny", "--lengths", "64", "128")]
        found["inspect"].pop()
        names = "Gated channel train size law chinchilla study sweep table held_out method plan quickstart"
        for name in names.split():
            run("explain", name)
        run("sweep", str(ROOT / "sweeps" / "learning_rate.yaml"), "--dry-run")
        encoder = run("train", "encoder", *SHORT, *text)["run"]
        run("train", "encoder_decoder", *SHORT)
        run("generate", one, "--prompt", "1 2", "--steps", "2")
        run("generate", encoder, "--prompt", "a [MASK]")
        run("look", one, "1 2")
        run("look", encoder, "a [MASK]")
        run("landscape", one, "--side", "3", "--windows", "8")
        run("probe", one, "ranks", "--tokens", "500")
        run("export", one, "--to", "exported")
        run("import", "exported", "--to", "imported")
        run("gc")
        run("gc", "--weights")
    assert {name.partition(" --")[0] for commands in SECTIONS for name in commands} == set(VERBS)
    for commands, text in SECTIONS.items():
        keys = documented(text)
        assert not [part for key in keys for part in key if not SNAKE.fullmatch(part) and part not in ("*", "**", "[]")]
        if not UNSEEN & {*commands}:
            seen = {path for name in commands for document in found.get(name, ()) for path in printed(document)}
            absent = sorted(".".join(key) for key in keys if not any(matches(key, path)[1] for path in seen))
            known = keys | (documented(SECTIONS["fit",]) if "report" in commands else set())
            more = sorted(".".join(path) for path in seen if not any(matches(key, path)[0] for key in known))
            assert (absent, more) == ([], []), commands
