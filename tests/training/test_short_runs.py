"""A short run needs no key to be set: its warmup ends, its evaluations cost little, and a person sees it go on."""

from __future__ import annotations

import io
import itertools
import re
import time

import pytest
from rich.console import Console

from scaling import schema
from scaling.config import load
from scaling.ledger import run_id
from scaling.schema import NonNegativeInt
from scaling.studies.estimate import estimates
from scaling.studies.plan import plan
from scaling.studies.question import Question
from scaling.training import progress
from scaling.training.evaluation import FORWARD, FREE, affordable
from scaling.training.experiment import assemble
from scaling.training.run import Observers, train
from scaling.training.schedule import Warmup, warmup_steps

TINY = ("size=tiny", "size.vocabulary=null", "data=synthetic", "log.wandb=disabled")


def experiment(*words: str):
    return assemble(load("decoder", [*TINY, *words]))


def warmup(*words: str) -> int:
    one = experiment(*words)
    return warmup_steps(one.schedule, one.steps)


@pytest.mark.parametrize("kind", sorted(schema.kinds("schedule")))
def test_a_run_of_twenty_steps_needs_no_key_of_its_schedule(kind):
    assert 0 <= warmup("trainer.max_steps=20", f"schedule.kind={kind}") <= 2


def test_the_warmup_is_a_tenth_of_the_run_and_at_most_100_steps():
    assert [warmup(f"trainer.max_steps={steps}") for steps in (1, 9, 20, 500, 1000, 5000)] == [0, 0, 2, 50, 100, 100]


@pytest.mark.parametrize("fraction", ["0.05", "5%", "5.0%"])
def test_a_warmup_is_written_as_a_fraction_of_the_run(fraction):
    assert warmup("trainer.max_steps=200", f"schedule.warmup={fraction}") == 10
    assert warmup("trainer.max_steps=4000", f"schedule={{kind: WSD, warmup: {fraction}}}") == 200


def test_equal_warmups_are_one_run_however_they_are_written():
    written = ("schedule.warmup=100", "schedule.warmup=10%", "schedule.warmup=auto")
    assert len({run_id(experiment("trainer.max_steps=1000", word).spec) for word in written}) == 1
    assert run_id(experiment("trainer.max_steps=990").spec) != run_id(
        experiment("trainer.max_steps=990", written[0]).spec
    )


def test_runs_from_before_warmups_were_fractions_keep_their_ids():
    """A run of 1,000 steps and more had 100 of warmup by default, named or, under another kind, left out."""
    assert experiment("trainer.max_steps=1000").spec["schedule"] == {"kind": "Cosine", "warmup": 100}
    assert experiment("trainer.max_steps=1000", "schedule.kind=WSD").spec["schedule"] == {"kind": "WSD"}
    trunk, _ = experiment("trainer.max_steps=1000", "schedule.kind=WSD").trunk() or pytest.fail("no trunk")
    assert trunk.spec["schedule"] == {"kind": "trunk"}
    short, _ = experiment("trainer.max_steps=500", "schedule.kind=WSD").trunk() or pytest.fail("no trunk")
    assert short.spec["schedule"] == {"kind": "trunk", "warmup": 50}


def test_runs_whose_warmups_differ_share_no_trunk(tmp_path):
    """A fraction of three lengths is three warmups; from 1,000 steps on the default is one."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic", "schedule.kind": "WSD", "train.batch": 8}

    def trunks(steps: list[int]) -> int:
        question = Question("x", "which?", "decoder", settings, {"trainer.max_steps": steps, "seed": [0]})
        return len(plan(question, [f"runs={tmp_path}"]).trunks)

    assert trunks([200, 300, 400]) == 0
    assert trunks([1000, 2000, 4000]) == 1


def test_a_schedule_of_ones_own_needs_no_more_than_a_number_of_steps():
    class Own:
        def __init__(self, *, warmup: NonNegativeInt = 7):
            self.warmup: Warmup = warmup

        def factor(self, step: int, steps: int) -> float:
            return min(1.0, (step + 1) / 7)

    assert warmup_steps(Own(), 20) == 7


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 100, 500, 2000])
@pytest.mark.parametrize(("batch", "spacing"), [(1, "log"), (4, "log"), (64, "log"), (64, "even")])
def test_evaluations_cost_at_most_a_tenth_of_a_run(steps, batch, spacing):
    """Or no more than reading 16,384 tokens, where a tenth of the run is less."""
    one = experiment(f"trainer.max_steps={steps}", f"train.batch={batch}", f"evaluate.spacing={spacing}")
    cost = FORWARD * sum(one.evaluated.values())
    assert cost <= max(0.1 * steps * batch, FORWARD * FREE / one.row_tokens)
    assert max(one.evaluated) == steps
    assert one.evaluation()[0].plan.limit == one.evaluated[steps]  # type: ignore[attr-defined]


def test_a_long_run_evaluates_all_windows_at_every_point():
    assert affordable(10_000, 12, 2048, 640_000, 64) == (12, 2048, 2048)
    one = experiment("trainer.max_steps=4000")
    assert one.spec["evaluate"]["windows"] is None
    assert run_id(one.spec) == run_id(experiment("trainer.max_steps=4000", "evaluate.windows=null").spec)


def test_windows_that_are_asked_for_are_evaluated_however_short_the_run():
    whole = experiment("trainer.max_steps=20", "evaluate.windows=null")
    assert set(whole.evaluated.values()) == {whole.validation.plan.limit} == {4032}  # type: ignore[attr-defined]
    assert set(experiment("trainer.max_steps=20", "evaluate.windows=1e3").evaluated.values()) == {1000}


def test_a_trunk_is_evaluated_as_the_run_that_it_becomes_but_not_at_its_end():
    words = ("schedule.kind=WSD", "trainer.max_steps=1000", "evaluate.points=5", "evaluate.windows=100")
    whole = experiment(*words, "evaluate.spacing=even")
    assert list(whole.evaluated) == [200, 400, 600, 800, 1000]
    trunk, step = whole.trunk() or pytest.fail("no trunk")
    assert trunk.evaluated == {share * step // 5: 100 for share in range(1, 5)}
    plain, _ = experiment(*words).trunk() or pytest.fail("no trunk")
    assert plain.spec == trunk.spec  # how often a trunk is evaluated is no part of what it is
    once, _ = experiment(*words, "evaluate.points=1").trunk() or pytest.fail("no trunk")
    assert once.evaluated == {}


def test_a_plan_states_the_warmup_and_the_evaluations_of_a_run_of_twenty_steps(tmp_path):
    """Its last evaluation is whole, as in every run of a study; those before it read 16,384 tokens in all."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic", "train.batch": 8}
    planned = plan(
        Question("x", "which?", "decoder", settings, {"trainer.max_steps": [20, 4000]}), [f"runs={tmp_path}"]
    )
    short, long = estimates(planned, None, [])
    assert (short["warmup"], long["warmup"]) == (2, 100)
    assert short["windows"] == {"before_end": 256 // (short["evaluations"] - 1), "at_end": 4032}
    assert (long["evaluations"], long["windows"]["at_end"]) == (12, 4032)
    for row, run in zip((short, long), planned.runs):
        own = run.experiment
        assert row["evaluations"] == len(own.evaluated)
        tokens = sum(own.evaluated.values()) * own.row_tokens
        assert row["C_evaluation"] == pytest.approx(row["C"] * FORWARD * tokens / row["D"])
        asked = assemble(
            load("decoder", [*TINY, "train.batch=8", f"trainer.max_steps={own.steps}", "evaluate.windows=null"])
        )
        assert run_id(asked.spec) == run.run  # what is evaluated before the end is no part of what a run is
    assert long["C_evaluation"] <= 0.1 * long["C"]


def test_a_person_sees_every_step_of_a_run_and_every_evaluation(tmp_path, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    bar, entries = progress.Bar(), []
    words = [*TINY, "size.width=8", "trainer.max_steps=12", "train.batch=4", f"runs={tmp_path}"]
    train(load("decoder", words), Observers([bar, entries.append]))
    bar.close()
    steps = [entry for entry in entries if entry["kind"] == "progress"]
    done = [entry["done"] for entry in steps]
    assert [step for step, _ in itertools.groupby(entry["step"] for entry in steps)] == list(range(13))
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, pytest.approx(1))
    assert {entry["evaluated"] for entry in steps} == {None, 0.0, 1.0}
    assert not any(entry["kind"] == "progress" for entry in _log(tmp_path))
    assert "0 of 12" in screen.getvalue()


def _log(runs):
    from scaling.ledger import Ledger

    ledger = Ledger.open(runs)
    return ledger.history(ledger.runs()[0])


def test_the_bar_moves_within_a_long_step_and_shows_the_time_left(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = progress.Pace()
    pace.report(0.0)
    assert pace.left() is None
    now += 30.0  # the first step compiles and allocates
    pace.report(0.1)
    assert pace.left() == pytest.approx(270)
    now += 10.0
    pace.report(0.2)
    assert pace.left() == pytest.approx(80)
    seen = []
    for _ in range(11):
        seen.append((pace.done(), pace.left()))
        now += 1.0
    assert all(later[0] > earlier[0] for earlier, later in itertools.pairwise(seen))
    assert seen[-1] == (pytest.approx(0.3), pytest.approx(70))
    now = 1000.0
    assert pace.done() == pytest.approx(0.3)  # no further than the step that is being done


def test_plain_lines_say_the_time_left_and_that_it_evaluates(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = progress.Lines()
    step = {"kind": "progress", "steps": 10, "evaluated": None}
    lines({**step, "step": 0, "done": 0.0})
    lines({"kind": "train", "step": 1, "steps": 10, "loss": 2.5, "tokens_per_second": None, "mfu": None})
    for now in (10.0, 20.0):
        lines({**step, "step": int(now / 10), "done": now / 100})
    lines({**step, "step": 2, "done": 0.2, "evaluated": 0.0})
    now = 30.0
    lines({**step, "step": 2, "done": 0.21, "evaluated": 0.5})
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "step       1 of 10  loss 2.5000"
    assert told[2] == "step       2 of 10  loss 2.5000  0:01:20 left"
    assert re.fullmatch(r"step       2 of 10  evaluating, 50%  0:\d\d:\d\d left", told[3])
