"""Equal experiments share a name, differing ones never do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.ledger import run_id
from scaling.ledger.identity import LONGEST, assignments, identity, run_name
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
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES |= st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
SPECS = st.dictionaries(st.text(), VALUES, max_size=4)


def changed(path: str, value: object) -> dict[str, Any]:
    """SPEC with the value at a dotted path set."""
    spec = {key: dict(part) if isinstance(part, dict) else part for key, part in SPEC.items()}
    node: dict[str, Any] = spec
    *way, last = path.split(".")
    for key in way:
        node[key] = dict(node.get(key, {}))
        node = node[key]
    node[last] = value
    return spec


def test_a_name_is_what_it_was() -> None:
    """Names are on disks: a change of this one orphans every run."""
    assert run_id(SPEC) == "9ac4aa04ed64974d"
    assert run_id(dict(reversed(changed("train.tokens", 2e7).items()))) == run_id(SPEC)
    assert run_id(changed("data.folder", "/there")) == run_id(SPEC)


@given(SPECS, SPECS)
def test_different_content_has_a_different_name(one, other):
    assert (run_id(one) == run_id(other)) == (identity(one) == identity(other))


@pytest.mark.parametrize("path", ["name", "log", "evaluate.points", "start.run", "train.micro_batch"])
def test_what_does_not_count(path):
    section, dot, _ = path.partition(".")
    assert run_id(changed(path, "anything")) == run_id({section: {}, **SPEC} if dot else SPEC)


COUNTED = [
    *(("model.block.channel.activation", "ReLU"), ("data.fingerprint", "c0ffef")),
    ("model.block.channel.log", "a key of a piece is not the section of that name"),
    *(("data", {"kind": "Text"}), ("optimizer.lr", 3.0000000000000003e-4), ("optimizer.betas", [0.95, 0.9])),
    *(("versions.Gated", 2), ("a key of tomorrow", 0), *(("seed", value) for value in (True, "1", None))),
]


@pytest.mark.parametrize(("path", "value"), COUNTED)
def test_what_counts(path, value):
    assert run_id(changed(path, value)) != run_id(SPEC)


circular: dict[str, Any] = {}
circular["itself"] = circular
NO_SPECS: dict[str, Any] = {
    "infinite": {"optimizer": {"lr": float("inf")}},
    "object": {"seed": object()},
    "number key": {"model": {1: "seed"}},
    "circular": circular,
}


@pytest.mark.parametrize("name", NO_SPECS)
def test_what_is_no_spec_is_refused_in_one_line(name):
    with pytest.raises(ScalingError) as refused:
        run_id(NO_SPECS[name])
    assert "\n" not in str(refused.value)
    assert refused.value.code == 2


# Names for people

NAMES = [
    ({"size.width": 16, "train.tokens": "500k"}, "width=16 tokens=500k"),
    ({"row": "Plain GeLU", "seed": 0}, "Plain GeLU seed=0"),
    ({"optimizer.lr": 0.00123456, "schedule.decay": 1000.0}, "lr=0.001235 decay=1000"),
    ({"model.l": [1, 2], "train.compile": True}, "l=[1,2] compile=true"),
]


@pytest.mark.parametrize(("values", "name"), NAMES)
def test_words_of_a_name(values, name):
    assert " ".join(assignments(values)) == name


def test_a_run_is_named_by_what_the_command_line_set(tmp_path):
    name = run_name(load(words(tmp_path / "runs", optimizer__lr="0.0212345", seed=7)), 6464)
    assert name.startswith("Decoder 6,464 ")
    assert {"lr=0.02123", "seed=7", "max_steps=12"} <= set(name.split())
    assert not any(word.startswith(("runs=", "wandb=", "every=")) for word in name.split())
    assert len(name) <= LONGEST
