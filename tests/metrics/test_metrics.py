"""Metrics on cases that are worked by hand, and on the examples that reference programs publish with their numbers."""

from __future__ import annotations

import math
import sys
from importlib.metadata import version

import numpy as np
import pytest
from scipy import stats

from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.metrics import bootstrap
from scaling.metrics.answers import squad, texts, token_f1, trivia
from scaling.metrics.classes import entities

LINES = {
    "Accuracy": ([1, 0, 2], [1, 1, 2]),
    "F1": ([1, 0, 1], [1, 1, 0]),
    "F1AndAccuracy": ([1, 0, 1], [1, 1, 0]),
    "MCC": ([1, 0, 1], [1, 1, 0]),
    "GenderParity": ([1, 0, 1], [1, 1, 0]),
    "Correlation": ([1.0, 2.5, 4.0], [1.5, 2.0, 5.0]),
    "TagAccuracy": ([["D", "N"], ["V"]], [["D", "V"], ["V"]]),
    "EntityF1": ([["B-PER", "O"], ["O"]], [["B-PER", "O"], ["B-LOC"]]),
    "SQuAD": (["the cat", "a dog"], [["cat"], ["dog", "wolf"]]),
    "SQuAD2": (["the cat", ""], [["cat"], []]),
    "ExactMatch": (["the cat", "x"], [["cat"], ["dog", "wolf"]]),
    "ReCoRD": (["the cat", "x"], [["cat"], ["dog", "wolf"]]),
    "MultiRC": ([1, 0, 1], [1, 1, 0]),
    "BLEU": (["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "a dog"]),
    "BracketF1": (
        ["(S (NP XX XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP XX )VP )S"],
        ["(S (NP (DT The) (NN cat)) (VP (VBZ sits)))", "(S (NP (NN Time)) (VP (VBZ flies) (NP (NN home))))"],
    ),
    "CompoundSplitBLEU": (["the well-known cat sat on the mat", "a dog"], ["the well-known cat sat on a mat", "a dog"]),
    "ROUGE": (["the cat sat", "a dog"], ["the cat sat down", "a dog"]),
}


def tags(text: str) -> list[str]:
    return text.split()


def score(line, predictions, references, groups=None):
    return schema.build("metric", line).score(predictions, references, groups)


@pytest.mark.parametrize("kind", schema.kinds("metric"))
def test_every_metric_gives_its_main_value_first_and_an_interval_around_each(kind):
    metric = schema.build("metric", kind)
    values = metric.score(*LINES[kind])
    intervals = bootstrap(metric, *LINES[kind], resamples=200)
    assert next(iter(values)) == metric.main == next(iter(intervals))
    for name, value in values.items():
        assert intervals[name].value == value
        assert intervals[name].low <= value + 1e-9
        assert intervals[name].high >= value - 1e-9


@pytest.mark.parametrize("kind", schema.kinds("metric"))
def test_every_metric_counts_an_invalid_output_as_wrong(kind):
    _, references = LINES[kind]
    metric = schema.build("metric", kind)
    right = [one[0] if kind in ("SQuAD", "ReCoRD", "ExactMatch") else one for one in references]
    if kind == "SQuAD2":
        right = ["cat", ""]
    if kind == "BracketF1":  # a reference is a tree, and a prediction its sequence
        right = ["(S (NP XX XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP XX (NP XX )NP )VP )S"]
    perfect = metric.score(right, references)
    damaged = metric.score([None, *right[1:]], references)
    assert damaged[metric.main] < perfect[metric.main]


SQUAD2 = (["Denver Broncos", "", "1976", ""], [["Denver Broncos", "the Broncos"], [], [], ["Beyoncé"]])
SCIKIT = ([0, 2, 1, 0, 0, 1], [0, 1, 2, 0, 1, 2])
BINARY = ([1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0])  # 2 are right of 3 predicted and of 4 real
SEVERAL = ([["a", "b"], ["a"]], [["a", "b"], ["b", "c"]])  # a: 1 right of 2 and 1; b: 1 of 1 and 2; c: 0 of 0 and 1
ALIASES = [["Beyoncé", "Queen Bey"], ["J.R.R. Tolkien"]]
DOG = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
BITTEN = [
    ["The dog bit the man.", "The dog had bit the man."],
    ["It was not unexpected.", "No one was surprised."],
    ["The man bit him first.", "The man had bitten the dog."],
]
FOX = (["The quick brown dog jumps on the log."], ["The quick brown fox jumps over the lazy dog"])
MISC = ["O O B-MISC I-MISC I-MISC I-MISC O", "O O O B-MISC I-MISC I-MISC O"]
KNOWN = {
    "one class": ("Accuracy", [1, 0, 2, 2], [1, 1, 2, 2], None, {"accuracy": 0.75}),
    "several classes": ("Accuracy", [["a", "b"], ["a"]], [["b", "a"], ["a", "c"]], None, {"accuracy": 0.5}),
    "scikit-learn's macro": ({"kind": "F1", "average": "macro"}, *SCIKIT, None, {"f1": 4 / 15}),
    "scikit-learn's micro": ({"kind": "F1", "average": "micro"}, *SCIKIT, None, {"f1": 1 / 3}),
    "a positive class": ("F1", *BINARY, None, {"f1": 4 / 7, "precision": 2 / 3, "recall": 1 / 2, "accuracy": 0.5}),
    "a named class": ({"kind": "F1", "positive": "yes"}, ["yes", "no"], ["yes", "yes"], None, {"f1": 2 / 3}),
    "both": ("F1AndAccuracy", *BINARY, None, {"mean": (4 / 7 + 0.5) / 2}),
    "macro of several": ({"kind": "F1", "average": "macro"}, *SEVERAL, None, {"f1": (2 / 3 + 2 / 3 + 0) / 3}),
    "micro of several": ({"kind": "F1", "average": "micro"}, *SEVERAL, None, {"f1": 2 * 2 / (3 + 4)}),
    "scikit-learn's mcc": ("MCC", [1, -1, 1, 1], [1, 1, 1, -1], None, {"mcc": -1 / 3}),
    "mcc of one class": ("MCC", [1, 1, 1], [0, 1, 1], None, {"mcc": 0}),
    # 3 of 5 are right; predicted 2, 2, 1; real 2, 1, 2: (15 − 8)/√((25 − 9)(25 − 9)) = 7/16
    "mcc of three": ("MCC", list("aabbc"), list("aabcc"), None, {"mcc": (4 * 5 - 8) / 16}),
    "two empty texts": ("SQuAD", ["the"], [["a"]], None, {"f1": 0, "exact_match": 1}),  # as in the script of 1.1
    "two empty answers": ("SQuAD2", ["the"], [[]], None, {"f1": 1}),  # as in that of 2.0
    "squad": (
        *("SQuAD", ["in New York City.", "The cat"], [["Boston", "New York"], ["cat", "a cat"]], None),
        {"f1": (2 / 3 + 1) / 2, "exact_match": 0.5},
    ),
    "squad 2": ("SQuAD2", *SQUAD2, None, dict.fromkeys(("f1", "answerable_f1", "unanswerable_accuracy"), 0.5)),
    "open": ("ExactMatch", ["the queen bey!", "JRR Tolkien"], ALIASES, None, {"exact_match": 1}),
    "trivia": (
        {"kind": "ExactMatch", "normalisation": "trivia"},
        *(["queen-bey", "JRR Tolkien"], ALIASES, None, {"exact_match": 0.5}),
    ),
    "no rule": (
        {"kind": "ExactMatch", "normalisation": "none"},
        *([" Queen Bey", "j.r.r. tolkien"], ALIASES, None, {"exact_match": 0.5}),
    ),
    # Two questions, three and two answers: the first is whole; right yes 2, predicted yes 3, real yes 3
    "multirc": (
        *("MultiRC", [1, 0, 1, 1, 0], [1, 0, 1, 0, 1], ["a"] * 3 + ["b"] * 2),
        {"mean": (2 / 3 + 0.5) / 2, "f1a": 2 / 3, "exact_match": 0.5},
    ),
    "multirc's questions": ("MultiRC", [[1, 0, 1], [1, 0]], [[1, 0, 1], [0, 1]], None, {"f1a": 2 / 3, "mean": 7 / 12}),
    "record": (
        *("ReCoRD", ["Barack Obama", "Berlin"], [["Obama", "Michelle Obama"], ["Berlin"]], None),
        {"mean": (5 / 6 + 0.5) / 2, "f1": 5 / 6, "exact_match": 0.5},
    ),
    "gender": (
        *("GenderParity", [1, 1, 0, 1], [1, 1, 0, 0], ["doctor", "doctor", "nurse", "nurse"]),
        {"accuracy": 0.75, "gender_parity": 0.5},
    ),
    "seqeval's": (
        *("EntityF1", [MISC[0].split(), tags("B-PER I-PER O")], [MISC[1].split(), tags("B-PER I-PER O")], None),
        {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.8},
    ),
    "sacrebleu's": ("BLEU", DOG, BITTEN, None, {"bleu": 48.530827009929865}),
    # README: rouge1 precision 0.75, recall 2/3; rougeL precision 0.625, recall 0.5556
    "rouge-score's": ("ROUGE", *FOX, None, {"rouge_1": 12 / 17, "rouge_l": 2 * 0.625 * (5 / 9) / (0.625 + 5 / 9)}),
    # The words of a sentence in several others count together: 4 of 4 and of 5, where one line shares 2 of each.
    "sentences": ("ROUGE", ["c d . a b"], ["a b . c d e"], None, {"rouge_l": 2 * 4 / (4 + 5)}),
    "lines": ("ROUGE", ["c d\na b"], ["a b\nc d e"], None, {"rouge_l": 2 * 4 / (4 + 5)}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_values_are_those_worked_by_hand_or_published(name):
    line, predictions, references, groups, expected = KNOWN[name]
    found = score(line, predictions, references, groups)
    assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_a_positive_class_that_is_no_class_of_the_examples_is_one_line():
    with pytest.raises(ScalingError, match="no example has such a class"):
        score("F1", ["no", "yes"], ["no", "yes"])


def test_correlations_are_scipys_and_numpys():
    generator = np.random.default_rng(1)
    a = generator.normal(size=60).round(1)
    b = (a + generator.normal(size=60)).round(0)  # with ties
    found = score("Correlation", list(a), list(b))
    expected = float(stats.pearsonr(a, b)[0]), float(stats.spearmanr(a, b)[0])  # type: ignore[arg-type]
    assert (found["pearson"], found["spearman"]) == pytest.approx(expected)
    assert found["mean"] == pytest.approx(sum(expected) / 2)
    assert score("Correlation", [2.1] * 60, list(b))["mean"] == 0
    a, b = (generator.random((2, 200)) < 0.4).astype(int)  # of two classes MCC is the correlation of indicators
    assert score("MCC", list(a), list(b))["mcc"] == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_texts_are_normalised_and_compared_as_the_scripts_do():
    assert squad("The  quick, brown fox's (a) tail!") == "quick brown foxs tail"
    assert trivia("The_quick, brown ‘fox’") == "quick brown fox"
    assert (squad("U.S."), trivia("U.S.")) == ("us", "u s")
    assert token_f1("x x y", "x z") == pytest.approx(2 * 1 / 5)
    assert token_f1("", "x") == 0
    assert "unanswerable_accuracy" not in score("SQuAD2", ["x"], [["x"]])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("I-PER I-PER B-PER O I-LOC I-ORG", [(0, 2, "PER"), (2, 3, "PER"), (4, 5, "LOC"), (5, 6, "ORG")]),
        ("B-PER I-PER E-PER S-PER I-PER", [(0, 3, "PER"), (3, 4, "PER"), (4, 5, "PER")]),
        ("B-A I-B", [(0, 1, "A"), (1, 2, "B")]),
        ("", []),
    ],
)
def test_entities_begin_and_end_as_conlleval_has_it(line, expected):
    assert list(entities(tags(line))) == expected


def test_entity_f1_of_conllevals_published_counts():
    # "processed 961 tokens with 459 phrases; found: 539 phrases; correct: 371." accuracy 84.08, 68.83, 80.83, 74.35
    found = schema.build("metric", "EntityF1").values(np.array([[371.0, 539, 459, 808, 961]]))
    rounded = {name: round(100 * float(value[0]), 2) for name, value in found.items()}
    assert rounded == {"f1": 74.35, "precision": 68.83, "recall": 80.83, "accuracy": 84.08}


@pytest.mark.parametrize(
    "references", [["a cat", "a dog"], [["a cat", "one cat"], ["a dog", "x"]], ["a cat", ["a", "b"]]]
)
def test_the_signature_of_bleu_is_what_sacrebleu_prints_for_its_score(references):
    sacrebleu = pytest.importorskip("sacrebleu.metrics")
    most = max(len(texts(reference)) for reference in references)
    streams = [[(texts(one) + [None] * most)[place] for one in references] for place in range(most)]
    for kwargs in ({}, {"tokenize": "intl", "lowercase": True}):
        theirs = sacrebleu.BLEU(**kwargs)
        value = theirs.corpus_score(["the cat sat", "a dog is there"], streams).score
        ours = schema.build("metric", {"kind": "BLEU", **kwargs})
        assert ours.signature(references) == str(theirs.get_signature())
        assert ours.score(["the cat sat", "a dog is there"], references)["bleu"] == pytest.approx(value)


def test_the_signature_of_rouge_states_its_settings_and_version():
    signature = schema.build("metric", {"kind": "ROUGE", "stem": False}).signature(["a"])
    assert (
        signature == f"rouge1,rouge2,rougeLsum|stem:no|refs:best|package:rouge-score|version:{version('rouge-score')}"
    )
    assert schema.build("metric", "Accuracy").signature(["a"]) is None


@pytest.mark.parametrize("kind", ["BLEU", "ROUGE"])
def test_a_package_that_is_not_installed_is_one_line(kind, monkeypatch):
    for name in ("sacrebleu", "sacrebleu.metrics", "rouge_score", "rouge_score.rouge_scorer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ScalingError) as error:
        score(kind, *LINES[kind])
    assert "scaling[eval]" in str(error.value)
    assert "\n" not in str(error.value)


COMPOUNDS = schema.build("metric", "CompoundSplitBLEU")


def test_compounds_are_split_before_ngrams_are_counted():
    """`a-b c` against `a-d c`: 13a keeps `a-b` whole, so 1 of 2 words is right; split into 4 tokens, 3 of 4 are."""
    hypothesis, reference = ["x-ray of a well-known man"], [["x-ray of a well-paid man"]]
    # tokens: x ##AT##-##AT## ray of a well ##AT##-##AT## known man: 9; right 1-grams 8, 2-grams 6, 3-grams 5, 4-grams 4
    expected = 100 * math.exp(sum(math.log(value) for value in (8 / 9, 6 / 8, 5 / 7, 4 / 6)) / 4)
    scores = COMPOUNDS.score(hypothesis, reference)
    assert scores == {"bleu_compound_split": pytest.approx(expected)}
    plain = schema.build("metric", "BLEU").score(hypothesis, reference)["bleu"]
    # x-ray of a well-known man: 5 tokens; right 4, 2, 1 and none, which is smoothed to 1/2 of 2
    assert plain == pytest.approx(100 * math.exp(sum(map(math.log, (4 / 5, 2 / 4, 1 / 3, 1 / 4))) / 4))
    assert "tok:none" in COMPOUNDS.signature(reference)
    assert COMPOUNDS.signature(reference).endswith("|before:13a,compound-split")
