"""A document that was changed, whatever its checksum: a command ends well, or names the file in one line."""

from __future__ import annotations

import copy
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

VALUES: list[Any] = [None, {}, [1], {"a": 1}, "x", -1, 1.5, 10**30, math.nan]

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


def check(root: Path, capsys: pytest.CaptureFixture[str], *commands: str) -> str:
    """What commands say on a ledger; each ends well, or refuses by one line."""
    run, said = next(root.glob("store/*")).name, ""
    for command in commands or ("runs", "runs s", f"show {run}", "gc", "runs --json", "sweep --study s --dry-run"):
        code = main([*command.split(), f"runs={root}"])
        err = capsys.readouterr().err
        assert code in (0, 2), err
        assert "Traceback" not in err
        assert code == 0 or err.splitlines()[-1].startswith("scaling: "), err
        said += err
    return said


def check_case(root: Path, copied: Path, case: tuple[Path, tuple[Any, ...], bool, Any], capsys) -> None:
    path, place, absent, value = case
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(root, copied)
    document = read(root / path)
    assert document is not None
    (copied / path).write_bytes(seal(changed(document, place, absent, value)))
    check(copied, capsys)


@pytest.mark.parametrize("seed", range(3))
def test_a_sealed_document_of_another_form_is_one_line(seed, ledger, tmp_path, capsys):
    every = list(cases(ledger))
    for case in random.Random(seed).sample(every, 25):
        check_case(ledger, tmp_path / "runs", case, capsys)


CHANGES = {
    "empty": lambda content: b"",
    "cut off": lambda content: content[: len(content) // 2],
    "a flipped bit": lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
    "edited by hand": lambda content: content.replace(b'"seed": ', b'"seed": 1').replace(b"2.1", b"1.9"),
    "no JSON": lambda content: b"[" * 100_000,
    "a log's": lambda content: b'{"kind":"start"}' * 3,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("file", ["spec.json", "result.json", "plan.json", "log.jsonl"])
def test_a_file_that_was_changed_is_one_line_and_never_taken_for_a_whole_one(file, change, ledger, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(ledger, root)
    before = {run: Ledger.open(root).result(run) for run in Ledger.open(root).runs()}
    for path in root.rglob(file):
        path.write_bytes(CHANGES[change](path.read_bytes()))
    said = check(root, capsys)
    after = {run: Ledger.open(root).result(run) for run in before}
    assert after == (dict.fromkeys(before) if file == "result.json" else before)
    assert ("the plan is damaged" in said) == (file == "plan.json")


def test_a_damaged_plan_is_named_with_its_key(ledger, tmp_path, capsys):
    shutil.copytree(ledger, tmp_path / "runs")
    path = tmp_path / "runs" / "studies" / "s" / "plan.json"
    plan = read(path)
    assert plan is not None
    plan["runs"][0]["overrides"] = [{"a": 1}]
    path.write_bytes(seal(plan))
    said = check(tmp_path / "runs", capsys, "report s")
    assert f"{path}: the plan is damaged: runs.*.overrides.* is of another form" in said
