"""Equal experiments share a name, differing ones never do."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from scaling.ledger import run_id
from scaling.ledger.identity import LONGEST, assignments, run_name
from tests.training.conftest import load, words

SPEC: dict[str, Any] = {
    "model": {"kind": "Decoder", "block": {"channel": {"kind": "Gated", "activation": "GeLU"}}, "layers": 4},
    "data": {"fingerprint": "c0ffee", "folder": "/here"},
    "size": {"width": 64, "length": 64},
    "optimizer": {"kind": "AdamW", "lr": 3e-4, "betas": [0.9, 0.95]},
    "schedule": {"kind": "WSD", "warmup": 100},
    "train": {"tokens": 20_000_000, "batch": 1024},
    "trainer": {"precision": "32-true"},
    "evaluate": {"windows": 64},
    "seed": 1,
    "versions": {"Gated": 1},
}
COUNTED: list[tuple[str, Any]] = [
    *(("model.block.channel.activation", "ReLU"), ("data.fingerprint", "c0ffef")),
    ("model.block.channel.log", "a key of a piece is not the section of that name"),
    *(("data", {"kind": "Text"}), ("optimizer.lr", 3.0000000000000003e-4), ("optimizer.betas", [0.95, 0.9])),
    *(("versions.Gated", 2), ("a key of tomorrow", 0), *(("seed", value) for value in (True, "1", None))),
]


def changed(path: str, value: object) -> dict[str, Any]:
    """SPEC with the value at a dotted path set."""
    spec = node = deepcopy(SPEC)
    *way, last = path.split(".")
    for key in way:
        node = node.setdefault(key, {})
    node[last] = value
    return spec


def test_a_name_is_what_it_was_and_what_counts_changes_it() -> None:
    """Names are on disks: a change of this one orphans every run."""
    assert run_id(SPEC) == "9ac4aa04ed64974d"
    assert run_id(dict(reversed(changed("train.tokens", 2e7).items()))) == run_id(SPEC)
    assert run_id(changed("data.folder", "/there")) == run_id(SPEC)
    for path, value in COUNTED:
        assert run_id(changed(path, value)) != run_id(SPEC), path
    for path in ("name", "log", "runs", "evaluate.points", "evaluate.spacing", "start.folder", "train.micro_batch"):
        section, dot, _ = path.partition(".")
        assert run_id(changed(path, "anything")) == run_id({section: {}, **SPEC} if dot else SPEC), path


def test_a_run_is_named_by_what_sets_it_apart_and_by_what_the_command_line_set(tmp_path):
    row = {"row": "Plain GeLU", "seed": 0, "optimizer.lr": 0.00123456, "decay": 1000.0, "l": [1, 2], "on": True}
    assert " ".join(assignments(row)) == "Plain GeLU seed=0 lr=0.001235 decay=1000 l=[1,2] on=true"
    name = run_name(load(words(tmp_path / "runs", optimizer__lr="0.0212345", seed=7)), 6464)
    assert name.startswith("Decoder 6,464 ")
    assert {"lr=0.02123", "seed=7", "max_steps=12"} <= set(name.split())
    assert not any(word.startswith(("runs=", "wandb=", "every=")) for word in name.split())
    assert len(name) <= LONGEST
