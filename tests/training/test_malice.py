"""Malicious checkpoints, configs and names run no code, and a secret of the environment is in no byte written."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaling import cli
from scaling.ledger import Ledger
from scaling.ledger.document import read, seal
from scaling.training import module
from tests.training.conftest import training, words
from tests.training.test_faults import killed_after_two_checkpoints, last_checkpoint
from tests.training.test_resume import after

CANARY = "canary-51f0c2aa"
FILES = ("weights.safetensors", "optimizer.safetensors")


class Bomb:
    """What a pickle may be made to do to whoever loads it."""

    def __init__(self, function: Callable[..., Any], *given: Any):
        self.function, self.given = function, given

    def __reduce__(self):
        return self.function, self.given


def pickled(path: Path, mark: Path, _: bytes) -> None:
    path.write_bytes(pickle.dumps(Bomb(os.mkdir, str(mark))))


def torchs_archive(path: Path, mark: Path, _: bytes) -> None:
    """A pickle as `torch.save` packs one."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb(os.mkdir, str(mark))))
        archive.writestr("archive/version", "3\n")


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Path, bytes], None]:
    """The real file, under a header that lies."""

    def lying(path: Path, _: Path, content: bytes) -> None:
        (length,) = struct.unpack("<Q", content[:8])
        told = json.loads(content[8 : 8 + length])
        changed = change(told)
        text = changed if isinstance(changed, bytes) else json.dumps(told).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    return lying


def first(told: dict[str, Any]) -> dict[str, Any]:
    return next(value for key, value in told.items() if key != "__metadata__")


def longer(path: Path, _: Path, content: bytes) -> None:
    """A header that says it is as long as memory."""
    path.write_bytes(struct.pack("<Q", 2**63) + content[8:])


DEEDS = {
    "a pickle": pickled,
    "a pickle of torch": torchs_archive,
    "offsets beyond the end": header(lambda told: first(told).update(data_offsets=[0, 2**40])),
    "a shape of 10¹⁸": header(lambda told: first(told).update(shape=[10**9, 10**9])),
    "a type there is not": header(lambda told: first(told).update(dtype="OBJECT")),
    "brackets without end": header(lambda _: b"[" * 200_000),
    "a length of 2⁶³": longer,
}
CASES = [
    pytest.param(deed, name, marks=() if deed == "a pickle" else pytest.mark.slow) for deed in DEEDS for name in FILES
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A ledger whose one run died after the checkpoints of steps 4 and 8."""
    runs = tmp_path_factory.mktemp("killed") / "runs"
    killed_after_two_checkpoints(words(runs), training)
    return runs


@pytest.mark.parametrize(("deed", "name"), CASES)
def test_a_sealed_checkpoint_of_another_hand_runs_nothing(deed, name, killed, tmp_path, capsys):
    """Even where its manifest vouches for it, for whoever can write the folder can seal one too."""
    shutil.copytree(killed, tmp_path / "runs")
    folder = last_checkpoint(tmp_path / "runs")
    path = folder / name
    DEEDS[deed](path, tmp_path / "exploded", path.read_bytes())
    manifest = read(folder / "manifest.json")
    content = path.read_bytes()
    manifest["files"][path.name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_bytes(seal({key: manifest[key] for key in ("step", "files", "note")}))
    assert cli.main(["train", *words(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "no whole safetensors file" in said[-1]
    assert not (tmp_path / "exploded").exists()


MALICE = {
    "a tag that calls": "model: !!python/object/apply:os.mkdir [{mark}]\n",
    "a tag that imports": "model: !!python/name:os.system ''\n",
    "a kind that is a function": "base: decoder\nmodel: {{block: {{channel: {{kind: os.mkdir, path: {mark}}}}}}}\n",
    "a resolver that reads secrets": "base: decoder\nlog: {{group: '${{oc.env:SECRET_TOKEN}}'}}\n",
    "a resolver of no name": "base: decoder\nlog: {{group: '${{eval:1}}'}}\n",
    "aliases that explode": "a: &a [x, x, x, x, x, x]\n"
    + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
    + "model: *i\n",
    "a base outside": "base: ../../../etc/passwd\n",
    "a base that is a device": "base: /dev/zero\n",
    "a key that is an attribute": "base: decoder\nmodel: {{__class__: {{kind: Decoder}}}}\n",
}


@pytest.mark.parametrize("command", ["train", *(pytest.param(one, marks=pytest.mark.slow) for one in ("inspect",))])
@pytest.mark.parametrize("name", MALICE)
def test_a_malicious_config_is_refused(name, command, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", CANARY)
    (tmp_path / "evil.yaml").write_text(MALICE[name].format(mark=tmp_path / "exploded"))
    assert cli.main([command, str(tmp_path / "evil.yaml"), *words(tmp_path / "runs")[1:]]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert CANARY not in said
    assert not (tmp_path / "exploded").exists()
    assert not (tmp_path / "runs").exists()


NAMES = ["../../escape", "/etc/escape", "$(mkdir exploded)", "`mkdir exploded`; x", "<script>x</script>", "%s%n{0}"]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["name", "group", "project"])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_only_a_name(name, key, tmp_path, fork):
    """With W&B and another logger on: they are told the name, and write where they write for every other."""
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)

    def there() -> None:
        os.chdir(inside)
        os.environ.pop("WANDB_MODE", None)

    told = words(inside / "runs", log__wandb="offline", log__loggers="[csv]")
    assert fork([*told, f"log.{key}={json.dumps(name)}"], there).wait() in (0, 2)
    assert [path.name for path in inside.iterdir()] in ([], ["runs"])
    assert [path.name for path in tmp_path.rglob("*") if "escape" in path.name or "exploded" in path.name] == []
    assert not Path("/etc/escape").exists()


def diverging() -> None:
    before = module.FamilyModule._backward
    module.FamilyModule._backward = lambda self, batch: before(self, batch) * float("nan")  # type: ignore[method-assign]


def failing() -> None:
    def broken(self, batch):
        raise RuntimeError("broken on purpose")

    module.FamilyModule._backward = broken  # type: ignore[method-assign]


def dying() -> None:
    module.FamilyModule.training_step = after(6, module.FamilyModule.training_step)  # type: ignore[method-assign]


# What is set, what happens, the code it ends with: 99 where an exception goes through a test's child.
LIVES: dict[str, tuple[dict[str, Any], Callable[[], None], int]] = {
    "finished": ({}, lambda: None, 0),
    "diverged": ({}, diverging, 0),
    "failed": ({}, failing, 99),
    "killed": ({}, dying, -9),
    "W&B offline": ({"log__wandb": "offline"}, lambda: None, 0),
    "csv and tensorboard": ({"log__loggers": "[csv, tensorboard]"}, lambda: None, 0),
    "two ranks": ({"trainer__devices": 2}, lambda: None, 0),
    "a trunk's schedule": ({"schedule__kind": "WSD", "schedule__warmup": 2}, lambda: None, 0),
    "bfloat16": ({"trainer__precision": "bf16-true"}, lambda: None, 0),
    "accumulation": ({"train__micro_batch": 1}, lambda: None, 0),
}


@pytest.mark.parametrize(
    "life", ["finished", *(pytest.param(one, marks=pytest.mark.slow) for one in LIVES if one != "finished")]
)
def test_a_secret_of_the_environment_is_written_nowhere(life, tmp_path, fork):
    changes, deed, code = LIVES[life]

    def prepare() -> None:
        os.environ.update(SECRET_TOKEN=CANARY, AWS_SECRET_ACCESS_KEY=CANARY, HF_TOKEN=CANARY, USER=CANARY)
        os.environ.pop("WANDB_MODE", None)
        deed()

    assert fork(words(tmp_path / "runs", **changes), prepare).wait() == code
    assert Ledger.open(tmp_path / "runs").runs()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
