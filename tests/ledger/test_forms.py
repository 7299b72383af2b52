"""A sealed document of another form is damaged: a command ends well, or names the file in one line."""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.ledger.document import read, seal
from scaling.ledger.forms import misfit, number, whole

VALUES: list[Any] = [None, True, {}, [], [1], {"a": 1}, "", "x", 0, -1, 1.5, 10**30, math.nan, math.inf, "a" * 3000]
FAST = 75

SPEC = {
    "model": {"kind": "Decoder"},
    "size": {"width": 8, "layers": 1},
    "data": {"kind": "Synthetic", "fingerprint": "f"},
    "optimizer": {"kind": "AdamW", "lr": 0.003},
    "train": {"batch": 4},
    "trainer": {"max_steps": 12},
    "seed": 0,
}
RESULT = {
    "loss": 2.1,
    "step": 12,
    "tokens": 768,
    "N": {"non_embedding": 856, "total": 1000},
    "C": {"exact": 5345280.0},
    "circumstances": {
        "device": "cpu",
        "ranks": 1,
        "seconds": 0.2,
        "versions": {"torch": "2"},
        "tokens_per_second": 9.5,
    },
}
STUDY = {"name": "s", "question": "q", "base": "decoder", "set": {}, "grid": {"seed": [0, 1]}}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a study of a finished run and one that failed."""
    root = tmp_path_factory.mktemp("forms") / "runs"
    found = Ledger.create(root)
    finished, failed = (found.add({**SPEC, "seed": seed}) for seed in (0, 1))
    with found.claim(finished) as attempt:
        attempt.finish("finished", RESULT)
    with found.claim(failed) as attempt:
        attempt.end("failed", "ValueError: broken", ValueError("broken"))
    entries = [
        {
            "run": run,
            "name": f"seed={seed}",
            "overrides": [],
            "held_out": False,
            "steps": 12,
            "flops": 1e6,
            "trunk": None,
        }
        for seed, run in enumerate((finished, failed))
    ]
    found.save_plan("s", {"study": STUDY, "runs": entries, "trunks": []})
    return root


def parts(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*place, key)
        yield from parts(inner, (*place, key))


def cases(root: Path) -> Iterator[tuple[Path, tuple[Any, ...], bool, Any]]:
    """Each part of each document without it (`True`), and with each value in its place."""
    for path in sorted(root.rglob("*.json")):
        document = read(path)
        assert document is not None
        for place in parts(document):
            yield path.relative_to(root), place, True, None
            yield from ((path.relative_to(root), place, False, value) for value in VALUES)


def changed(document: dict[str, Any], place: tuple[Any, ...], absent: bool, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(document)
    inner: Any = document
    for key in place[:-1]:
        inner = inner[key]
    if absent:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return document


def check(root: Path, copied: Path, case: tuple[Path, tuple[Any, ...], bool, Any], capsys: pytest.CaptureFixture[str]):
    path, place, absent, value = case
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(root, copied)
    document = read(root / path)
    assert document is not None
    (copied / path).write_bytes(seal(changed(document, place, absent, value)))
    run = Ledger.open(root).runs()[0]
    for words in (
        ["runs"],
        ["runs", "s"],
        ["show", run],
        ["gc"],
        ["runs", "--json"],
        ["sweep", "--study", "s", "--dry-run"],
    ):
        code = main([*words, f"runs={copied}"])
        said = capsys.readouterr().err
        assert code in (0, 2), said
        assert "Traceback" not in said
        assert code == 0 or said.splitlines()[-1].startswith("scaling: "), said


@pytest.mark.parametrize("seed", range(3))
def test_a_sealed_document_of_another_form_is_one_line(seed, ledger, tmp_path, capsys):
    every = list(cases(ledger))
    for case in random.Random(seed).sample(every, FAST // 3):
        check(ledger, tmp_path / "runs", case, capsys)


@pytest.mark.slow
def test_every_sealed_document_of_another_form_is_one_line(ledger, tmp_path, capsys):
    for case in cases(ledger):
        check(ledger, tmp_path / "runs", case, capsys)


def test_a_damaged_plan_is_named_with_its_key(ledger, tmp_path, capsys):
    shutil.copytree(ledger, tmp_path / "runs")
    path = tmp_path / "runs" / "studies" / "s" / "plan.json"
    plan = read(path)
    assert plan is not None
    plan["runs"][0]["overrides"] = [{"a": 1}]
    path.write_bytes(seal(plan))
    assert main(["report", "s", f"runs={tmp_path / 'runs'}"]) == 2
    said = capsys.readouterr().err
    assert f"{path}: the plan is damaged: runs.0.overrides.0 is of another form" in said


def test_a_result_of_another_form_is_no_result(ledger, tmp_path):
    shutil.copytree(ledger, tmp_path / "runs")
    found = Ledger.open(tmp_path / "runs")
    run = next(run for run in found.runs() if found.result(run) is not None)
    path = found.folder(run) / "result.json"
    result = read(path)
    assert result is not None
    path.write_bytes(seal({**result, "tokens": "many"}))
    assert found.result(run) is None
    assert found.status(run).state == "stopped"


@pytest.mark.parametrize(
    ("value", "form", "wrong"),
    [
        ({"a": 1}, {"a": whole}, None),
        ({}, {"a?": whole}, None),
        ({}, {"a": whole}, "a"),
        ({"a": True}, {"a": whole}, "a"),
        ({"a": [{"b": 1}, {"b": "x"}]}, {"a": [{"b": number}]}, "a.1.b"),
        ({"a": {"x": 1, "y": None}}, {"a": {"*": number}}, "a.y"),
        ([], {"a": whole}, "it"),
    ],
)
def test_the_part_that_does_not_fit_is_named(value, form, wrong):
    assert misfit(json.loads(json.dumps(value)), form) == wrong
