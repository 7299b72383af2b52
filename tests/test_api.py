"""`import scaling`: the verbs of the command line as functions, with the results that the commands print."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import scaling
from scaling.base.printing import tabulate
from tests.command_line import printed, refuses
from tests.laws.conftest import LAW, THETA, grid

SMALL = ("size=tiny", "size.length=16", "schedule.warmup=1", "train.batch=4", "log.wandb=disabled")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return scaling.train("decoder", *SMALL, steps=6, runs=str(tmp_path_factory.mktemp("api") / "runs"), progress=False)


@pytest.fixture(scope="module")
def fit():
    """A fit of forty runs, of which the largest size is held out."""
    table = grid(np.geomspace(1e6, 1e8, 5), np.geomspace(1e8, 3e11, 8), 0.003)
    return scaling.fit(table, law="chinchilla", hold_out="N", targets=[{"N": 1e9, "D": 1e12}])


def test_importing_the_package_imports_no_verb_and_every_name_is_there_and_documented():
    code = "import sys; before = set(sys.modules); import scaling; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "scaling", "scaling.verbs"]
    for name in scaling.__all__:
        assert name == "__version__" or getattr(scaling, name).__doc__
        assert name in dir(scaling)
    assert all(getattr(scaling.laws, name) is not None for name in scaling.laws.__all__)
    with pytest.raises(AttributeError, match="no attribute 'tain'"):
        scaling.tain  # noqa: B018


def test_training_gives_the_run_that_the_command_gives(run, capsys):
    ledger = run.path.parents[1]
    words = ("train", "decoder", *SMALL, "trainer.max_steps=6", f"runs={ledger}")
    result = printed(capsys, *words, "--json")
    assert result["already"]
    assert (result["run"], result["loss"]) == (run.id, run.loss)
    assert (run.state, run.path) == ("finished", ledger / "store" / run.id)
    assert list(run.log[run.log["kind"] == "evaluate"]["loss"])[-1] == run.loss
    with pytest.raises(scaling.ScalingError) as caught:
        scaling.train("decoder", optimizer__lrr=1e-3)
    assert (caught.value.key, "lr" in str(caught.value.fix)) == ("optimizer.lrr", True)
    table = scaling.runs(runs=ledger).data
    assert table[["run", "loss", "trainer.max_steps", "size.length"]].to_numpy().tolist() == [[run.id, run.loss, 6, 16]]


def test_a_model_writes_what_the_command_prints(run, capsys):
    ledger = run.path.parents[1]
    model = scaling.load(run.id[:6], runs=ledger)
    assert model.tokenizer is None
    written = model.generate("5 9 2", steps=4)
    assert len(written.split()) == 4
    answers = printed(capsys, "generate", run.id, "--prompt", "5 9 2", "--steps", 4, f"runs={ledger}", "--json")
    assert answers[0]["written"][0]["text"] == written
    assert run.model().generate("5 9 2", steps=4) == written
    refuses("no tokenizer", model.generate, "def main(")


def test_a_fit_has_what_the_command_prints_and_predicts_and_shows_itself(fit):
    document = fit.to_json()
    assert fit.estimates == document["estimates"]
    for name, interval in document["intervals"].items():
        assert (fit.intervals[name].low, fit.intervals[name].high) == (interval["low"], interval["high"])
    assert fit.predictions.loc[0, "run_high"] == document["predictions"][0]["interval_run"]["high"]
    assert len(fit.held_out) == 8
    assert fit.held_out["covered"].mean() > 0.8
    row = fit.predict(N=[1e8, 1e9], D=1e12).loc[1]
    assert row["loss"] == pytest.approx(LAW.predict(THETA, {"N": [1e9], "D": [1e12]})[0], rel=0.01)
    assert row["run_low"] < row["mean_low"] < row["loss"] < row["run_high"]
    best = fit.optimum(C=6e21)
    assert 6 * best["N"] * best["D"] == pytest.approx(6e21)
    refuses("no column 'n'", fit.predict, n=1e9, D=1e12)
    refuses("target N=-1.0: must be positive", fit.predict, N=[1e9, -1], D=1e12)
    refuses("C=-1: must be positive", fit.optimum, C=-1)
    mistakes: dict[str, Any] = {"fix": [1], "where": {"N": 1}, "law": ["chinchilla"]}
    for option, what in {"fix": "keys with values", "where": "a list of text", "law": "text"}.items():
        table = {"N": [1e8], "D": [1e9], "loss": [3.0]}
        refuses(f"{option}=.*: expected {what}", scaling.fit, table, **{option: mistakes[option]})
    assert "<table>" in fit._repr_html_()
    assert "95% interval" in str(fit)
    assert fit.format("markdown").startswith("**chinchilla")
    assert r"\toprule" in fit.format("latex")
    assert fit.plot()._repr_png_().startswith(b"\x89PNG")
    refuses("did you mean 'contours'", fit.plot, "contour")


def test_inspecting_counts_what_the_command_counts_and_shows_it(capsys):
    cost = scaling.inspect("gpt2", "size=gpt2/small")
    assert cost.parameters == 124_439_808
    document = printed(capsys, "inspect", "gpt2", "size=gpt2/small", "--json")
    assert (document["schema"], document["parameters"]) == (1, cost.parameters)
    assert isinstance(cost.costs["gpt2"], scaling.Cost)
    assert '<th scope="row">parameters</th><td class="words">124,439,808</td>' in cost._repr_html_()
    assert ">  cross</th>" not in cost._repr_html_()
    lengths = scaling.inspect("gpt2", "llama", size="tiny", lengths=(64, 128)).document
    assert [(row["model"], row["length"]) for row in lengths] == [(m, n) for m in ("gpt2", "llama") for n in (64, 128)]


def test_a_result_shows_its_texts_and_tables():
    result = scaling.Result([1], ["<b>", tabulate(["x"], [[1], ["<b>"]])])
    assert str(result) == "<b>\nx\n1\n<b>"
    assert result._repr_html_().startswith("<pre>&lt;b&gt;</pre><table>")
    assert "<b>" not in result._repr_html_()
