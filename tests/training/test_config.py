"""What a user can get wrong in a run is one line before anything starts; sizes and threads follow from the run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest
import torch

from scaling import cli
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.studies import launch
from scaling.studies.estimate import estimates
from scaling.studies.machine import Size
from scaling.studies.plan import plan
from scaling.studies.question import Question
from scaling.training import machine
from scaling.training.evaluation import FORWARD
from tests.training.conftest import experiment, load, train, words

# Overrides, and what the one line has to hold.
BAD = {
    "optimizer.lr=0": "optimizer.lr=0",
    "optimizer.lr=fast": "optimizer.lr",
    "optimizer.kind=AdamX": "did you mean 'Adam",
    "optimizer.beta=0.9": "did you mean 'betas'",
    "optimizer.betas=[0.9]": "betas",
    "optimizer.betas=[0.9,1.5]": "betas",
    "optimizer.eps=0": "eps",
    "optimizer.weight_decay=-1": "weight_decay",
    "schedule.kind=Cosin": "did you mean 'Cosine'",
    "schedule.warmup=12": "warmup",
    "schedule.warmup=-1": "warmup",
    "schedule.floor=2": "floor",
    "schedule={kind: WSD, decay: 0}": "decay",
    "schedule={kind: WSD, shape: round}": "shape",
    "parametrization=MuPP": "did you mean 'MuP'",
    "parametrization={kind: GPT2, std: -1}": "std",
    "trainer.max_step=3": "did you mean 'max_steps",
    "trainer.max_steps=0": "trainer.max_steps",
    "train.tokens=0 trainer.max_steps=null": "train.tokens",
    "train.tokens=null trainer.max_steps=null": "train.tokens",
    "train.tokens=10 trainer.max_steps=null": "less than one batch",
    "train.epochs=0 trainer.max_steps=null": "train.epochs",
    "train.epochs=many trainer.max_steps=null": "train.epochs",
    "train.patience=0": "train.patience=",
    "train.patience=1.5": "train.patience=",
    "train.smoothing=1.5": "below 1",
    "train.batch=0": "train.batch",
    "train.batch={5: 4}": "train.batch",
    f"train.batch={10**30}": "more than 4,194,304 rows a step",
    f"train.batch={{0: 4, 5: {2**40}}}": "more than 4,194,304 rows a step",
    f"train.batch={{from: 1, to: {2**62}, over: {2**62}}}": "more than 4,194,304 rows a step",
    "train.batch={from: 3, to: 4, over: 10}": "train.batch",
    "train.micro_batch=3": "do not divide",
    "train.micro_batch=0": "train.micro_batch",
    "trainer.devices=0": "trainer.devices",
    "trainer.devices=4096": "trainer.devices",
    "trainer.devices=gpu": "trainer.devices",
    "trainer.strategy=ddp": "trainer.strategy",
    "trainer.strategy=dpp": "did you mean 'ddp'",
    "trainer.precision=fp64": "trainer.precision",
    "trainer.precision=bf16": "did you mean 'bf16-true'",
    "trainer.gradient_clip_val=0": "trainer.gradient_clip_val",
    "train.checkpoint_every=0": "train.checkpoint_every",
    "train.compile=maybe": "train.compile",
    "log.every=0": "log.every",
    "log.wandb=maybe": "log.wandb",
    "log.loggers=[cvs]": "csv",
    "evaluate.points=0": "evaluate.points",
    "evaluate.windows=-1": "evaluate.windows",
    "model.block.mixer.dropout=1.5": "dropout",
    "model.block.mixer.kind=Atention": "did you mean 'Attention'",
    "size.vocabulary=8": "use 9 ids; set size.vocabulary to 9",
    "size.length=100000": "data",
    "size.width=7 size.heads=2": "size",
    "size.layers=0": "size",
    "size=tinny": "tiny",
    "data=synthetik": "synthetic",
    "data.validation=3": "shorter than one window",
    "data.tokens=3": "shorter than one window",
    "objective=Masked": "objective.kind",
    "objective=Sequence": "objective.kind",
    "seed=many": "seed",
    "seed=-1": "seed",
    "encoder": "found one more",
}


@pytest.mark.parametrize("line", BAD)
def test_a_mistake_is_one_line_before_anything_starts(line, tmp_path, capsys):
    overrides = line.split(" ") if "{" not in line else [line]
    assert cli.main(["train", *words(tmp_path / "runs"), *overrides]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("scaling: ")
    assert BAD[line] in error
    assert not list(tmp_path.glob("runs/store/*/log.jsonl"))


def test_an_output_that_is_no_folder_or_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    outputs = [tmp_path / "file"]
    if os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        outputs.append(tmp_path / "locked" / "runs")
    for output in outputs:
        assert cli.main(["train", *words(output)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# The vocabulary: what data and objective need, rounded up where that is asked, and never fewer

MANY = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
VOCABULARIES = [
    *(
        ({"data.symbols": 16, "train.round_vocabulary": multiple}, size)
        for multiple, size in ((1, 17), (8, 24), (128, 128))
    ),
    (MANY, 1001),  # a shipped size is a shape; its vocabulary is that of another corpus
    ({**MANY, "train.round_vocabulary": 128}, 1024),
    ({"size.vocabulary": "absent"}, 512),
]


@pytest.mark.parametrize(("changes", "size"), VOCABULARIES)
def test_a_model_has_the_ids_that_its_data_need(changes, size, tmp_path, capsys):
    """It is counted with the ids with which it is trained."""
    one = experiment(tmp_path, **changes)
    assert one.config["size.vocabulary"] == one.spec["size"]["vocabulary"] == size
    assert one.cost.parameters_by_slot["head"] == size * 8
    assert cli.main(["inspect", *words(tmp_path, **changes), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == one.cost.parameters


@pytest.mark.parametrize("where", ["command line", "file", "size's keys"])
def test_a_vocabulary_that_a_person_gives_stands(where, tmp_path):
    line = words(tmp_path, **MANY)
    if where == "command line":
        line.append("size.vocabulary=512")
    else:
        size = "{width: 8, layers: 1, heads: 1, length: 16, vocabulary: 512}"
        lines = [f"size: {size}"] if where == "size's keys" else ["size: tiny", "size.vocabulary: 512"]
        (tmp_path / "mine.yaml").write_text("\n".join(["base: decoder", *lines, ""]))
        line = [str(tmp_path / "mine.yaml"), *(word for word in line[1:] if not word.startswith("size"))]
    with pytest.raises(ScalingError, match=r"size\.vocabulary=512: the data and the objective use 1001 ids"):
        train(line)


def test_without_prepared_data_a_shipped_size_is_counted_as_it_is(tmp_path, capsys):
    line = ["inspect", "decoder", "size=ladder/10k", "data=python", f"runs={tmp_path}/runs", "--json"]
    counts = []
    for more in ((), ("size.vocabulary=4096",)):
        assert cli.main([*line, *more]) == 0
        counts.append(json.loads(capsys.readouterr().out))
    assert counts[0] == counts[1]
    assert cli.main([*line, "size.vocabulary=null"]) == 2
    assert "data: the data have not been prepared in " in capsys.readouterr().err


def test_a_plan_states_the_warmup_and_the_evaluations_of_its_runs(tmp_path):
    """Their last evaluation is whole; those before it read 16,384 tokens in all, or what a tenth of the run leaves."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic", "train.batch": 8}
    question = Question("x", "which?", "decoder", settings, {"trainer.max_steps": [20, 4000]})
    planned = plan(question, [f"runs={tmp_path}"])
    short, long = estimates(planned, None, [])
    assert (short["warmup"], long["warmup"]) == (2, 100)
    assert short["windows"] == {"before_end": 256 // (short["evaluations"] - 1), "at_end": 4032}
    assert (long["evaluations"], long["windows"]["at_end"]) == (12, 4032)
    assert long["C_evaluation"] <= 0.1 * long["C"]
    for row, run in zip((short, long), planned.runs):
        one = run.experiment
        assert row["evaluations"] == len(one.evaluated)
        tokens = sum(one.evaluated.values()) * one.row_tokens
        assert row["C_evaluation"] == pytest.approx(row["C"] * FORWARD * tokens / row["D"])


# Threads and the processor


@pytest.fixture
def two_threads(monkeypatch):
    """As a person's shell leaves torch: nothing in the environment, and several threads."""
    for variable in machine.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


SHORT = {"trainer.max_steps": 2, "schedule.warmup": 0}


def test_a_small_run_trains_with_one_thread_unless_a_person_asks(run, two_threads, monkeypatch):
    """It leaves torch as it was, and the number is no part of what the run is."""
    ids = {result["run"]: result["circumstances"]["threads"] for result in (run(**SHORT), run("encoder", **SHORT))}
    assert list(ids.values()) == [1, 1]
    assert torch.get_num_threads() == 2
    if (os.cpu_count() or 1) > 1:
        assert run(**SHORT, train__threads=2, seed=1)["circumstances"]["threads"] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run(**SHORT, seed=2)["circumstances"]["threads"] == 2
    assert run(**SHORT, seed=3, train__threads=1)["circumstances"]["threads"] == 1
    assert run_id(experiment(train__threads=1).spec) == run_id(experiment().spec)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(ScalingError, match=r"train.threads=3: there are 2 cores; take fewer, or auto"):
        experiment(train__threads=3)


SUITED = {"size=tiny": 1, "size=ladder/100k train.batch=16": 1, "size=ladder/10M": 16}
SUITED["size=ladder/10M train.micro_batch=1"] = 1


@pytest.mark.parametrize("line", SUITED)
def test_threads_grow_with_what_is_computed_at_once(line):
    data = ["data=synthetic", "size.vocabulary=null", "trainer.max_steps=20"]
    from scaling.training.experiment import assemble

    assert machine.suited(assemble(load(["decoder", *data, *line.split()])), 16) == SUITED[line]


def test_workers_of_small_runs_have_one_thread_on_a_machine_of_many_cores(tmp_path, monkeypatch):
    """Two runs on 64 cores are two workers, which could have 32 threads each."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic"}
    question = Question("x", "which?", "decoder", settings, {"trainer.max_steps": [20], "seed": [0, 1]})
    found, sizes = plan(question, [f"runs={tmp_path}"]), []

    class Launcher(launch.Local):
        def __init__(self, command, size, most, log):
            super().__init__(command, size, most, log)
            sizes.append(size)
            self.alive = lambda progress=0: False

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(launch, "Local", Launcher)
    ledger = found.ledger()
    ledger.study_folder("x").mkdir(parents=True)
    (ledger.study_folder("x") / "workers.log").touch()
    launch.train(ledger, "x", found, lambda _: None)
    assert sizes == [Size(2, 1)]


def test_doctor_does_not_praise_every_core(two_threads, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["doctor", "--json"])
    (finding,) = (one for one in json.loads(capsys.readouterr().out) if one["topic"] == "threads")
    assert finding["what"] == "OMP_NUM_THREADS is not set: the size of a run's model decides"


FAULTS = """
import resource
import torch
from scaling.training.machine import keep_freed

if {kept}:
    keep_freed()
faults = []
for _ in range(30):
    torch.ones(1 << 24)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[9])  # the first blocks find the heap too short
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_what_a_step_freed_is_not_cleared_again():
    def faults(kept: bool) -> int:
        code = FAULTS.format(kept=kept)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)

    assert faults(True) < 100 < 1000 < faults(False)


@pytest.mark.parametrize("call", [2, 13])
def test_steps_and_evaluations_count_subnormal_numbers_as_zero_and_what_follows_does_not(call, sabotaged):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)
    product = "(torch.tensor(1e-39) * 1).item()"
    with pytest.raises(ArithmeticError, match="it was zero"):
        train(
            sabotaged(
                f"import torch\nif {product} == 0: raise ArithmeticError('it was zero')", call, **{"evaluate.points": 1}
            )
        )
    assert eval(product) != 0


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_a_peak_is_stated_only_where_it_is_known(precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    assert machine.peak(precision) == (989e12 if precision == "bf16-true" else None)
