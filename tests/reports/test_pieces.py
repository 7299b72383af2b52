"""The pieces of the page: markup that holds, numbers with the digits that are known."""

from __future__ import annotations

import shlex
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.laws.catalogue import LAWS
from scaling.reports.answer import answer
from scaling.reports.markup import Html, ends, formula, interval_strip, join, percent, plain, significant, tag
from scaling.reports.sections import key


class Text(HTMLParser):
    def __init__(self, markup: str):
        super().__init__()
        self.tags, self.attributes, self.data = [], {}, ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data):
        self.data += data


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_text_stays_text(text):
    read = Text(tag("p", text, title=text))
    assert read.tags == ["p"]
    assert read.data == text
    assert read.attributes == {"title": text}
    assert plain(tag("p", tag("b", text))) == text


def test_markup_is_not_escaped_twice():
    assert tag("b", tag("i", "<"), None, class_="x") == '<b class="x"><i>&lt;</i></b>'
    assert isinstance(join("a", Html("<br>")), Html)


def test_an_interval_is_told_with_the_digits_it_leaves():
    assert significant(2.20096, 2.1795, 2.2131) == "2.201"
    assert ends({"low": 2.17956, "high": 2.2131}) == "[2.180, 2.213]"
    assert ends({"low": None, "high": 2.2131}).startswith("[open, ")
    assert significant(156730.5, 6501.2, 2815126.1) == "1.6 × 10⁵"
    assert percent(5.378e-5) == "0.0054%"
    assert percent(-0.0123) == "−1.2%"


def test_exponents_are_raised_and_indices_lowered():
    assert formula("E + A N^-α, <b>") == "E + A N<sup>−α</sup>, &lt;b&gt;"
    assert formula("(N_c/N)^(α_N/α_D)") == "(N<sub>c</sub>/N)<sup>α<sub>N</sub>/α<sub>D</sub></sup>"


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_every_law_can_be_written(law):
    assert "^" not in formula(law.formula).replace("<sup>", "")


def test_a_strip_shows_open_ends_and_the_truth():
    drawn = interval_strip({"low": None, "high": 2.0, "estimate": 1.5}, 1.8)
    assert 'x1="0"' in drawn
    assert "the truth is 1.8000" in drawn


@pytest.mark.parametrize(
    "words", [[], ["optimizer.lr=1e-2"], ["log.wandb=offline", "seed=3", "trainer.gradient_clip_val=2.0"]]
)
def test_the_command_names_the_words_it_was_given(words, tmp_path):
    from scaling.reports.provenance import command
    from scaling.studies.plan import plan
    from scaling.studies.question import read

    found = plan(read("quickstart", None, words), [*words, f"runs={tmp_path}"])
    assert command(found) == shlex.join(["scaling", "study", "quickstart", *words])


def test_what_is_not_identified_is_said_first(study):
    found = study[2]
    doubt = "E is not separated from A by these points: the interval is open below"
    lost = {"not_identified": [doubt], "unidentified": ["E"]}
    said = answer(changed(found, lost))
    assert said.standing == "not identified"
    assert said.sentence.startswith("These runs do not identify the law: E is not separated")
    assert answer(changed(found, {"not_identified": []})).standing == "identified"


def changed(found, entries):
    """The findings with other entries in the document of their fit."""
    return replace(found, fit=replace(found.fit, document={**found.document, **entries}))


def without(found, name, doubt, **ends):
    """The findings with one parameter that is not identified."""
    intervals = {**found.document["intervals"], name: {**found.document["intervals"][name], **ends}}
    lost = {"not_identified": [doubt], "unidentified": [name], "intervals": intervals}
    return changed(found, lost)


def test_a_floor_that_is_not_identified_is_no_figure(study):
    """0.65 in [open, 34,310] was the largest number of a page."""
    found = study[2]
    estimate = found.document["intervals"]["E"]["estimate"]
    doubt = "E is not separated from A by these points: the interval is open below"
    tile = key(without(found, "E", doubt, low=None), join())
    assert "not identified" in tile
    assert doubt in tile
    assert f"{found.document['n']} points, N " in tile
    assert f"{estimate:.3f}" not in tile
    assert "not identified" not in key(found, join())


def test_a_wide_exponent_is_no_answer_and_the_floor_still_is(study):
    found = study[2]
    doubt = "alpha lies anywhere from 0.07 to 0.96: the interval is wider than the estimate"
    said = answer(without(found, "alpha", doubt, low=0.07, high=0.96))
    assert said.standing == "identified in part"
    assert said.sentence.startswith(f"These runs do not identify all of the law: {doubt}")
    assert "α</strong>" not in said.sentence.replace(" = ", "</strong>")
    assert "levels off at" in said.sentence
    assert "not identified" not in key(without(found, "alpha", doubt), join())
