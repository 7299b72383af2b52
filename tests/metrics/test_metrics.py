"""Metrics on cases worked by hand and on the examples that reference programs publish, and their intervals."""

import math
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from scipy import stats

from scaling.config.schema import build, kinds
from scaling.metrics.classes import Accuracy
from scaling.metrics.metric import bootstrap, paired_bootstrap
from scaling.metrics.trees import BracketF1, brackets, linear, parse, plain, repaired
from tests.command_line import refuses

approx = pytest.approx
METRICS: dict[str, Any] = kinds("metric")
CLASSES = ([1, 1, 0], [1, 1, 0], [1, 0, 1])
TEXTS = (["the cat sat on the mat", "a dog"], ["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "a fox"])
TREES = ["(S (NP (DT The) (NN cat)) (VP (VBZ sits)))", "(S (NP (NN Time)) (VP (VBZ flies) (NP (NN home))))"]
WRITTEN = ["(S (NP XX XX )NP (VP XX )VP )S", "(S (NP XX )NP (VP XX (NP XX )NP )VP )S"]
# References, predictions that are right, and some that are not.
EXAMPLES: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    **dict.fromkeys(("Accuracy", "F1", "F1AndAccuracy", "MCC", "GenderParity", "MultiRC"), CLASSES),
    "Correlation": ([1.5, 2.0, 5.0], [1.5, 2.0, 5.0], [1.0, 2.5, 4.0]),
    "TagAccuracy": ([["D", "V"], ["V"]], [["D", "V"], ["V"]], [["D", "N"], ["V"]]),
    "EntityF1": ([["B-PER", "O"], ["B-LOC"]], [["B-PER", "O"], ["B-LOC"]], [["B-PER", "O"], ["O"]]),
    **dict.fromkeys(("SQuAD", "ExactMatch", "ReCoRD"), ([["cat"], ["dog", "wolf"]], ["cat", "dog"], ["the cat", "x"])),
    "SQuAD2": ([["cat"], []], ["cat", ""], ["the cat", "x"]),
    "BracketF1": (TREES, WRITTEN, [WRITTEN[0], WRITTEN[0]]),
    **dict.fromkeys(("BLEU", "CompoundSplitBLEU", "ROUGE"), TEXTS),
}


def score(line, predictions, references, groups=None):
    return build("metric", line).score(predictions, references, groups)


@pytest.mark.parametrize("kind", METRICS)
def test_every_metric_has_intervals_around_its_values_and_counts_an_invalid_output_as_wrong(kind):
    metric, (references, right, other) = build("metric", kind), EXAMPLES[kind]
    values, found = metric.score(other, references), bootstrap(metric, other, references, resamples=200)
    assert (next(iter(values)), found["metrics"]) == (metric.main, values)
    for value, (low, high) in zip(values.values(), found["intervals"].values(), strict=True):
        assert low - 1e-9 <= value <= high + 1e-9
    assert metric.score([None, *right[1:]], references)[metric.main] < metric.score(right, references)[metric.main]


MACRO, MICRO = ({"kind": "F1", "average": average} for average in ("macro", "micro"))
SCIKIT = ([0, 2, 1, 0, 0, 1], [0, 1, 2, 0, 1, 2])
BINARY = ([1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0])  # 2 are right of 3 predicted and of 4 real
SEVERAL = ([["a", "b"], ["a"]], [["a", "b"], ["b", "c"]])  # a: 1 right of 2 and 1; b: 1 of 1 and 2; c: 0 of 0 and 1
ALIASES = [["Beyoncé", "Queen Bey"], ["J.R.R. Tolkien"]]
SQUAD2 = (["Denver Broncos", "", "1976", ""], [["Denver Broncos", "the Broncos"], [], [], ["Beyoncé"]])
DOG = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
BITTEN = [
    ["The dog bit the man.", "The dog had bit the man."],
    ["It was not unexpected.", "No one was surprised."],
    ["The man bit him first.", "The man had bitten the dog."],
]
FOX = (["The quick brown dog jumps on the log."], ["The quick brown fox jumps over the lazy dog"])
YORK = (["in New York City.", "The  cat's (a) tail!"], [["Boston", "New York"], ["cats tail", "cat"]])
TRIVIA, NO_RULE = ({"kind": "ExactMatch", "normalisation": rule} for rule in ("trivia", "none"))
LETTERS = ["queen-bey", "The_J R, R ‘tolkien’", "JRR Tolkien"]
OBAMA = (["Barack Obama", "Berlin"], [["Obama", "Michelle Obama"], ["Berlin"]])
MISC = ["O O B-MISC I-MISC I-MISC I-MISC O", "B-PER I-PER O"], ["O O O B-MISC I-MISC I-MISC O", "B-PER I-PER O"]
# The same entities as conlleval has them begin and end, at I and E as at B and S.
BEGUN = (
    ["I-PER I-PER B-PER O I-LOC I-ORG", "B-PER I-PER E-PER S-PER I-PER", "B-A I-B"],
    ["B-PER I-PER B-PER O B-LOC B-ORG", "B-PER I-PER I-PER B-PER B-PER", "B-A B-B"],
)
MISC, BEGUN = ([[tags.split() for tags in side] for side in both] for both in (MISC, BEGUN))
# "a-b c" against "a-d c": tokens x ##AT##-##AT## ray of a well ##AT##-##AT## known man: 9; right 1-grams 8, 2-grams 6,
# 3-grams 5, 4-grams 4. Not split: 5 tokens; right 4, 2, 1 and none, which is smoothed to 1/2 of 2.
COMPOUND = (["x-ray of a well-known man"], [["x-ray of a well-paid man"]])
LETTER = (["a-b-c x"], ["a-b-c y"])  # a ##AT##-##AT## b-c x


def mean(*precisions):
    return 100 * math.exp(sum(map(math.log, precisions)) / 4)


KNOWN = {
    "several classes": ("Accuracy", *SEVERAL, {"accuracy": 0.5}),
    "scikit-learn's macro": (MACRO, *SCIKIT, {"f1": 4 / 15}),
    "scikit-learn's micro": (MICRO, *SCIKIT, {"f1": 1 / 3}),
    "a positive class": ("F1", *BINARY, {"f1": 4 / 7, "precision": 2 / 3, "recall": 1 / 2, "accuracy": 0.5}),
    "both": ("F1AndAccuracy", *BINARY, {"mean": (4 / 7 + 0.5) / 2}),
    "macro of several": (MACRO, *SEVERAL, {"f1": (2 / 3 + 2 / 3 + 0) / 3}),
    "micro of several": (MICRO, *SEVERAL, {"f1": 2 * 2 / (3 + 4)}),
    "scikit-learn's mcc": ("MCC", [1, -1, 1, 1], [1, 1, 1, -1], {"mcc": -1 / 3}),
    "mcc of one class": ("MCC", [1, 1, 1], [0, 1, 1], {"mcc": 0}),
    # 3 of 5 are right; predicted 2, 2, 1; real 2, 1, 2: (15 − 8)/√((25 − 9)(25 − 9)) = 7/16
    "mcc of three": ("MCC", list("aabbc"), list("aabcc"), {"mcc": (4 * 5 - 8) / 16}),
    "two empty texts": ("SQuAD", ["the"], [["a"]], {"f1": 0, "exact_match": 1}),  # as in the script of 1.1
    "two empty answers": ("SQuAD2", ["the"], [[]], {"f1": 1}),  # as in that of 2.0
    "squad": ("SQuAD", *YORK, {"f1": (2 / 3 + 1) / 2, "exact_match": 0.5}),
    "repeated words": ("SQuAD", ["x x y"], [["x z"]], {"f1": 2 * 1 / 5}),
    "squad 2": ("SQuAD2", *SQUAD2, dict.fromkeys(("f1", "answerable_f1", "unanswerable_accuracy"), 0.5)),
    "open": ("ExactMatch", ["the queen bey!", "JRR Tolkien"], ALIASES, {"exact_match": 1}),
    "trivia": (TRIVIA, LETTERS, [*ALIASES, ALIASES[1]], {"exact_match": 2 / 3}),
    "no rule": (NO_RULE, [" Queen Bey", "j.r.r. tolkien"], ALIASES, {"exact_match": 0.5}),
    "multirc's questions": ("MultiRC", [[1, 0, 1], [1, 0]], [[1, 0, 1], [0, 1]], {"f1a": 2 / 3, "mean": 7 / 12}),
    "record": ("ReCoRD", *OBAMA, {"mean": (5 / 6 + 0.5) / 2, "f1": 5 / 6, "exact_match": 0.5}),
    "seqeval's": ("EntityF1", *MISC, {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.8}),
    "conlleval's": ("EntityF1", *BEGUN, {"f1": 1}),
    "sacrebleu's": ("BLEU", DOG, BITTEN, {"bleu": 48.530827009929865}),
    "compounds": ("CompoundSplitBLEU", *COMPOUND, {"bleu_compound_split": mean(8 / 9, 6 / 8, 5 / 7, 4 / 6)}),
    "one letter": ("CompoundSplitBLEU", *LETTER, {"bleu_compound_split": mean(3 / 4, 2 / 3, 1 / 2, 1 / 2)}),
    "whole compounds": ("BLEU", *COMPOUND, {"bleu": mean(4 / 5, 2 / 4, 1 / 3, 1 / 4)}),
    # README: rouge1 precision 0.75, recall 2/3; rougeL precision 0.625, recall 0.5556
    "rouge-score's": ("ROUGE", *FOX, {"rouge_1": 12 / 17, "rouge_l": 2 * 0.625 * (5 / 9) / (0.625 + 5 / 9)}),
    # The words of a sentence in several others count together: 4 of 4 and of 5, where one line shares 2 of each.
    "sentences": ("ROUGE", ["c d . a b"], ["a b . c d e"], {"rouge_l": 2 * 4 / (4 + 5)}),
    "lines": ("ROUGE", ["c d\na b"], ["a b\nc d e"], {"rouge_l": 2 * 4 / (4 + 5)}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_values_are_those_worked_by_hand_or_published(name):
    line, predictions, references, expected = KNOWN[name]
    found = score(line, predictions, references)
    assert {key: found[key] for key in expected} == approx(expected)


def test_groups_are_questions_and_pairs():
    # Two questions, three and two answers: the first is whole; right yes 2, predicted yes 3, real yes 3
    of_answers = score("MultiRC", [1, 0, 1, 1, 0], [1, 0, 1, 0, 1], ["a"] * 3 + ["b"] * 2)
    assert of_answers == approx({"mean": (2 / 3 + 0.5) / 2, "f1a": 2 / 3, "exact_match": 0.5})
    of_pairs = score("GenderParity", [1, 1, 0, 1], [1, 1, 0, 0], ["doctor", "doctor", "nurse", "nurse"])
    assert of_pairs == {"accuracy": 0.75, "gender_parity": 0.5}
    line = {"kind": "Task", "answer": "text", "text": "{a}", "tokenizer": "Byte", "files": {"train": "a.jsonl"}}
    refuses("answers of the kind text; take another", build, "data", {**line, "metric": "MultiRC"})
    # Questions are drawn whole: a sample has a multiple of ten right.
    groups, predictions = [index // 10 for index in range(100)], [1] * 50 + [0] * 50
    found = bootstrap(build("metric", "MultiRC"), predictions, [1] * 100, groups, resamples=500)["intervals"]
    assert found["exact_match"][0] < 0.35 < 0.65 < found["exact_match"][1]
    refuses("binary F1 is of one class, and there are 3; set average: macro, or pos", score, "F1", [0, 1, 2], [0, 1, 1])
    assert score({"kind": "F1", "positive": 1}, [0, 1, 2], [0, 1, 1])["f1"] == approx(2 / 3)
    assert score({"kind": "F1", "positive": 2}, [0, 1, 1], [0, 1, 1])["f1"] == 0  # these examples have none of it
    refuses(r"metric\.positive=7: there is no such class", build("metric", {"kind": "F1", "positive": 7}).check, (0, 1))


def test_correlations_are_scipys_and_numpys():
    generator = np.random.default_rng(1)
    a = generator.normal(size=60).round(1)
    b = (a + generator.normal(size=60)).round(0)  # with ties
    found = score("Correlation", list(a), list(b))
    expected = float(stats.pearsonr(a, b)[0]), float(stats.spearmanr(a, b)[0])  # type: ignore[arg-type]
    assert (found["pearson"], found["spearman"]) == approx(expected)
    assert found["mean"] == approx(sum(expected) / 2)
    assert score("Correlation", [2.1] * 60, list(b))["mean"] == 0
    tiny = score("Correlation", list(1e-7 * a), list(1e-7 * b))  # a correlation has no scale
    assert tiny["pearson"] == approx(expected[0])


def test_signatures_state_the_settings_and_the_version_and_a_missing_package_is_one_line(monkeypatch):
    bleu = build("metric", {"kind": "BLEU", "tokenize": "intl"}).signature(["a cat", ["a", "b"]])
    assert bleu == f"nrefs:var|case:mixed|eff:no|tok:intl|smooth:exp|version:{version('sacrebleu')}"
    rouge = f"rouge1,rouge2,rougeLsum|stem:no|refs:best|package:rouge-score|version:{version('rouge-score')}"
    assert build("metric", {"kind": "ROUGE", "stem": False}).signature(["a"]) == rouge
    for name in ("sacrebleu", "sacrebleu.metrics", "rouge_score", "rouge_score.rouge_scorer"):
        monkeypatch.setitem(sys.modules, name, None)
    for kind in ("BLEU", "ROUGE"):
        refuses(r"pip install 'scaling\[eval\]'", score, kind, TEXTS[2], TEXTS[0])


CAT = "( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sits) (PP-LOC (IN on) (NP (-NONE- *T*)))) (. .)))"


def test_the_sequence_is_vinyals_and_becomes_the_tree_again():
    learned = plain(parse(CAT))
    assert learned is not None
    # The trace, the NP that it leaves empty, and the functions are gone.
    assert linear(learned) == "(S (NP XX XX )NP (VP XX (PP XX )PP )VP XX )S"
    tagged = linear(learned, tags=True)
    assert tagged == "(S (NP DT NN )NP (VP VBZ (PP IN )PP )VP . )S"
    words = [(leaf.label, leaf.word or "") for leaf in learned.words()]
    assert str(repaired(tagged, words)) == str(learned)


WORDS = [("DT", "The"), ("NN", "cat"), ("VBZ", "sits")]
RIGHT, FLAT = "(S (NP (DT The) (NN cat)) (VP (VBZ sits)))", "(S (DT The) (NN cat) (VBZ sits))"


def test_whatever_was_written_becomes_a_tree_of_the_sentence():
    for sequence, tree in {
        "(S (NP XX XX )NP (VP XX": RIGHT,  # open at the end
        "(S (NP XX XX )NP (VP XX )S": RIGHT,  # S closes VP too
        "(S (NP XX XX )NP )ADJP (VP XX )VP )S": RIGHT,  # closes nothing
        "(S (NP XX XX )NP (VP XX XX XX )VP )S": RIGHT,  # too many words
        "(S (NP XX )NP )S": "(S (NP (DT The)) (NN cat) (VBZ sits))",  # too few
        "(NP XX XX )NP (VP XX )VP": RIGHT,  # two trees
        "(S (NP XX XX XX )NP (VP )VP )S": "(S (NP (DT The) (NN cat) (VBZ sits)))",  # without a word
        ") ( )S nonsense": FLAT,
    }.items():
        assert str(repaired(sequence, WORDS)) == tree
    assert str(repaired("", WORDS[:1])) == "(S (DT The))"  # a sentence of one word has a constituent too
    assert repaired("(NP " * 3000, [("DT", "a")]).words()  # a tree of any depth


def test_brackets_count_as_evalb_counts_them_and_give_the_f1_of_three_trees():
    # Words are 0 The, 1 cat, 2 sits, 3 on: the full stop is taken out, and with it the trace and its NP.
    assert dict(brackets(parse(CAT))) == {("S", 0, 4): 1, ("NP", 0, 2): 1, ("VP", 2, 4): 1, ("PP", 3, 4): 1}
    assert brackets(parse("(S (PRT (RP up)))")) == brackets(parse("(S (ADVP (RP up)))"))
    assert brackets(parse("(TOP (S (NP (NP (NN a)))))"))["NP", 0, 1] == 2
    # Right / predicted / real: 4/4/4, then 2/3/4 (NP over three words, no VP), then 1/1/3.
    eats, rains = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (NN meat))))", "(S (NP (PRP it)) (VP (VBZ rains)))"
    predictions = ["(S (NP XX XX )NP (VP XX (PP XX )PP )VP XX )S", "(S (NP XX XX XX )NP (NP XX )NP )S", None]
    scores = BracketF1().score(predictions, [["-", CAT], ["-", eats], ["-", rains]])
    expected = {"precision": (4 + 2 + 1) / (4 + 3 + 1), "recall": 7 / (4 + 4 + 3), "f1": 2 * 7 / (8 + 11)}
    assert scores == approx({**expected, "complete": 1 / 3})


def test_the_interval_of_an_accuracy_is_the_binomials_and_wilsons_where_all_or_none_are_right():
    predictions = (np.random.default_rng(0).random(400) < 0.8).astype(int).tolist()
    interval, p = bootstrap(Accuracy(), predictions, [1] * 400)["intervals"]["accuracy"], np.mean(predictions)
    half = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert interval == approx([p - half, p + half], abs=0.01)
    for right, bounds in ((1, [0.9812, 1]), (0, [0, 0.0188])):
        interval = bootstrap(Accuracy(), [right] * 200, [1] * 200)["intervals"]["accuracy"]
        assert interval == approx(bounds, abs=5e-5)
    spans = bootstrap(build("metric", "SQuAD2"), ["x", ""] * 50, [["x"], []] * 50)["intervals"]
    assert spans["unanswerable_accuracy"][0] == approx(50 / 53.84, abs=1e-4)


def test_a_sample_scores_as_its_examples_would():
    """The values of weights are those of a list in which each example is as often as its weight."""
    generator = np.random.default_rng(3)
    references, predictions = generator.integers(0, 4, (2, 30)).astype(float)
    drawn = generator.integers(0, 30, (5, 30))
    weights = np.stack([np.bincount(one, minlength=30) for one in drawn]).astype(float)
    for metric in (build("metric", line) for line in ("Correlation", "MCC", MACRO)):
        found = metric.weighted(metric.rows(list(predictions), list(references), None), weights)
        for index, one in enumerate(drawn):
            expected = metric.score(list(predictions[one]), list(references[one]))
            assert {name: found[name][index] for name in expected} == approx(expected, abs=1e-9)


def test_two_systems_are_told_apart_where_one_is_better():
    better, worse = [1] * 90 + [0] * 10, [1] * 60 + [0] * 40
    result = paired_bootstrap(Accuracy(), better, worse, [1] * 100)
    # Each example contributes 1 with chance 0.3 and else 0: the standard error of the mean is √(0.3 · 0.7 / 100).
    half = 1.96 * math.sqrt(0.3 * 0.7 / 100)
    assert (result["difference"], result["p"]) == (approx(0.3), 0)
    assert result["interval"] == approx([0.3 - half, 0.3 + half], abs=0.02)
    one, two = (np.random.default_rng(0).random((2, 200)) < 0.5).astype(int).tolist()
    alike = paired_bootstrap(Accuracy(), one, two, [1] * 200)
    assert alike["interval"][0] < 0 < alike["interval"][1]
    assert alike["p"] > 0.05
    assert paired_bootstrap(Accuracy(), one, one, [1] * 200)["p"] == 0.5
