"""The checklist answers what the points say, names what nobody said, and invents nothing."""

import numpy as np
import pytest

from scaling.fit_report.checklist import checklist, missing
from scaling.law import fit
from scaling.law.columns import from_columns
from scaling.law.interval import intervals
from scaling.law.points import SETUP_QUESTIONS
from scaling.published import gadre2024


def table(**more):
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
    loss = 1.7 + 400 * N**-0.34 + 900 * D**-0.3 + 0.01 * np.sin(np.arange(25))
    return from_columns({"N": N, "D": D, "loss": loss, **more})


def answered(found, **more):
    return {answer.question: answer.answer for answer in checklist(found, **more)}


def test_what_nobody_said_is_missing():
    left = missing(checklist(fit("chinchilla", table())))
    assert set(SETUP_QUESTIONS.values()) <= set(left)
    assert "How is N (parameters) counted?" in left
    assert "Was it tested on held-out scales?" in left
    assert "How uncertain are the parameters?" in left
    assert "Which objective, and what is its value?" not in left


def test_what_the_points_say_is_answered():
    points = table(tokenizer=["gpt2"] * 25, optimizer=["AdamW"] * 25, lr=np.geomspace(1e-4, 1e-3, 25))
    found = fit("chinchilla", points)
    answers = answered(found, stated={"architecture": "decoder, width = 64 layers"}, intervals=intervals(found, "t"))
    assert answers[SETUP_QUESTIONS["tokenizer"]] == "gpt2"
    assert answers[SETUP_QUESTIONS["optimizer"]] == "AdamW"
    assert answers[SETUP_QUESTIONS["lr"]] == "0.0001 to 0.001, 25 values"
    assert answers[SETUP_QUESTIONS["architecture"]] == "decoder, width = 64 layers"
    assert answers["How uncertain are the parameters?"] == "95% intervals by t"
    assert answers["Over which range of N?"] == "1e+06 to 1e+09, 3.0 decades"
    assert answers["How many distinct scales?"] == "25"


def test_a_published_set_answers_its_definitions():
    answers = answered(gadre2024.law(gadre2024.points()))
    assert answers["How is C (training compute) counted?"] == "6ND"
    assert answers[SETUP_QUESTIONS["tokenizer"]] == "GPT-NeoX-20B"
    assert answers["How many runs were fitted, and which were left out?"].endswith("= 35 planned")


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_the_noise_between_seeds_is_measured(noise):
    base = table()
    rng = np.random.default_rng(0)
    columns = {name: np.tile(base[name], 40) for name in ("N", "D", "loss")}
    columns["loss"] = columns["loss"] + noise * rng.standard_normal(1000)
    answers = answered(fit("chinchilla", from_columns({**columns, "seed": np.repeat(np.arange(40), 25)})))
    measured = float(answers["How large is the noise between seeds?"].split()[0])
    assert measured == pytest.approx(noise, rel=0.1)


def test_noise_that_was_measured_elsewhere_is_told_where_no_scale_is_repeated():
    told = {"noise": "0.002, over 20 seeds of another study"}
    assert answered(fit("chinchilla", table()), stated=told)[SETUP_QUESTIONS["noise"]] == told["noise"]
    base = table()
    columns = {name: np.tile(base[name], 2) for name in ("N", "D", "loss")}
    twice = from_columns({**columns, "seed": np.repeat([0, 1], 25)})
    assert answered(fit("chinchilla", twice), stated=told)[SETUP_QUESTIONS["noise"]].endswith("(25 degrees of freedom)")
