"""What goes wrong in a run: it is never taken for finished, it runs nobody's code, and it tells no secret."""

import hashlib
import os
import shutil
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from scaling.base.errors import ScalingError
from scaling.data.batches import Batches
from scaling.data.module import TrainingLoader
from scaling.ledger.document import read, seal
from scaling.verbs import command_line as cli
from tests.training.conftest import LONG, ends, left, train, words

ONCE = {"evaluate.points": 1}  # call n of a piece is step n, and the call after the last step the evaluation


# In an update, and in the second batch of three in the evaluation.
SILENT = [("raise StopIteration", 3, "instead of"), ("raise StopIteration", 14, "instead of")]
SILENT += [("raise BrokenPipeError(32, 'a pipe')", 3, "a pipe")]


@pytest.mark.parametrize(("fault", "call", "message"), SILENT)
def test_a_model_that_ends_its_training_in_silence_fails(fault, call, message, sabotaged, tmp_path):
    with pytest.raises(Exception, match=message):
        cli.main(["train", *sabotaged(fault, call, **LONG, **ONCE)])
    assert ends(tmp_path / "runs") == ["failed"]


def test_data_that_are_not_those_of_the_plan_and_a_rate_that_moves_no_weight_fail_the_run(tmp_path):
    whole = Batches.batch
    cases: list[Any] = [(Batches, "batch", lambda *a: whole(*a).micro(0, 3), {}, "tokens of step 1: 48 instead of 64")]
    cases += [(TrainingLoader, "__len__", lambda self: 5, {}, "updates applied: 5 instead of 12")]
    rate = r"optimizer.lr=1e-50: none of the weights has changed in 12 updates"
    cases += [(Batches, "batch", whole, {"optimizer.lr": 1e-50}, rate)]
    for number, (owner, name, function, changes, message) in enumerate(cases):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, function)
            with pytest.raises(Exception, match=message):
                train(words(tmp_path / f"{number}", **changes))
        assert ends(tmp_path / f"{number}") == ["failed"]


def test_no_variable_of_lightnings_shortens_a_run_and_every_file_follows_the_umask(unbroken, tmp_path, monkeypatch):
    for name in ("MAX_STEPS", "LIMIT_TRAIN_BATCHES"):
        monkeypatch.setenv(f"PL_TRAINER_{name}", "2")
    before = os.umask(umask := 0o002)
    try:
        train(words(tmp_path / "runs", log__loggers="[csv]"))
    finally:
        os.umask(before)
    assert left(tmp_path / "runs").result == unbroken.result
    paths = list((tmp_path / "runs").rglob("*"))
    assert {"weights.safetensors", "optimizer.safetensors", "log.jsonl", "result.json"} <= {path.name for path in paths}
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path


class Watch(Callback):
    """The weights before each update."""

    def on_train_batch_start(self, trainer, pl_module, *_):
        self.module, self.before = pl_module, self.weights(pl_module)

    def weights(self, module) -> list[torch.Tensor]:
        return [tensor.detach().clone() for tensor in (*module.state_dict().values(), *module.model.parameters())]


POISON = {"the loss": "x = x * float('nan')", "the gradient": "x.register_hook(lambda g: g * float('inf'))"}
HOW: list[Any] = [("the loss", 0, {}), ("the gradient", 5, {"train.micro_batch": 1})]
HOW += [("the gradient", 11, {"trainer.precision": "bf16-true"})]


@pytest.mark.parametrize(("what", "step", "how"), HOW)
def test_a_number_that_is_not_finite_is_caught_before_the_update(what, step, how, sabotaged):
    """The weights at the end are those of the step before, and the run is a result."""
    calls = 4 if "train.micro_batch" in how else 1
    line, watch = sabotaged(POISON[what], (step + 1) * calls, **ONCE, **how), Watch()
    result = train(line, watch)
    assert (result["outcome"], result["step"], result["loss"]) == ("diverged", step, None)
    assert what in result["reason"]
    torch.testing.assert_close(watch.weights(watch.module), watch.before, rtol=0, atol=0)
    assert train(line) == result


def test_a_model_that_breaks_at_its_last_update_has_diverged(sabotaged):
    """The loss of each step is finite, that of the evaluation after them is not."""
    result = train(sabotaged(POISON["the loss"], 13, **ONCE))
    assert (result["outcome"], result["loss"]) == ("diverged", None)
    assert result["reason"] == "the held-out loss is not finite at step 12"


CAUSED = "try: bytearray(10**18)\nexcept MemoryError as error: raise ValueError('no') from error"


@pytest.mark.parametrize("fault", ["import torch; torch.empty(10**15)", "raise RuntimeError('std::bad_alloc')", CAUSED])
def test_memory_that_runs_out_is_one_line_with_what_may_fit(fault, sabotaged, tmp_path):
    with pytest.raises(ScalingError) as failed:
        train(sabotaged(fault, 3))
    assert failed.value.code == 1
    assert str(failed.value) == "train.micro_batch=None: out of memory; accumulate: train.micro_batch=2"
    assert ends(tmp_path / "runs") == ["out_of_memory"]


@pytest.fixture
def checkpoint(base: tuple[Path, str], tmp_path: Path) -> Path:
    """The checkpoint of step 8, the last one in a copy of the tiny run's ledger that has no result yet."""
    shutil.copytree(base[0], tmp_path / "runs")
    (run,) = tmp_path.glob("runs/store/*")
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints" / "000000000012")
    return run / "checkpoints" / "000000000008"


def sealed(folder: Path, **changes: Any) -> None:
    """A manifest that vouches for what is there: whoever can write in the folder can seal one."""
    manifest = {**(read(folder / "manifest.json") or {}), **changes}
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_bytes(seal({key: manifest[key] for key in ("step", "files", "note")}))


OTHERS = [("000000000008", {"step": 4}), ("000000000012", {"step": 12})]
OTHERS += [("001000000000", {"step": 10**9, "note": {"tokens": 64 * 10**9}})]


@pytest.mark.parametrize(("name", "changes"), OTHERS)
def test_a_checkpoint_of_another_step_is_not_used(name, changes, checkpoint, tmp_path, caplog, unbroken):
    sealed(checkpoint.rename(checkpoint.with_name(name)), **changes)
    assert train(words(tmp_path / "runs"))["circumstances"]["from_step"] == 0
    assert f"{name} is damaged and not used" in caplog.text
    assert left(tmp_path / "runs").result == unbroken.result


@pytest.mark.parametrize("name", ["weights", "optimizer"])
def test_a_malicious_checkpoint_runs_nothing(name, checkpoint, tmp_path, capsys):
    """A pickle that makes a folder, and a header of safetensors that is longer than the file."""
    path = checkpoint / f"{name}.safetensors"
    pickle = f"cos\nmkdir\n(S'{tmp_path / 'exploded'}'\ntR.".encode()
    path.write_bytes(pickle if name == "weights" else struct.pack("<Q", 2**63) + path.read_bytes()[8:])
    sealed(checkpoint)
    assert cli.main(["train", *words(tmp_path / "runs")]) == 2
    assert "not a whole safetensors file" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "exploded").exists()


def test_a_secret_of_the_environment_is_written_nowhere(tmp_path, fork, sabotaged):
    secrets = dict.fromkeys(("SECRET_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "USER"), "canary-51f0c2aa")
    assert fork(sabotaged("raise ValueError", 5), lambda: os.environ.update(**secrets)).wait() == 99
    assert ends(tmp_path / "runs") == ["failed"]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"canary-51f0c2aa" not in path.read_bytes(), path
