"""Metrics on cases that are worked by hand, and on the examples that reference programs publish with their numbers."""

from __future__ import annotations

import sys
from importlib.metadata import version

import numpy as np
import pytest
from scipy import stats

from scaling import schema
from scaling.errors import ScalingError
from scaling.metric import bootstrap
from scaling.metric.answers import squad, texts, token_f1, trivia
from scaling.metric.tags import entities

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


def test_accuracy_of_one_class_and_of_several():
    assert score("Accuracy", [1, 0, 2, 2], [1, 1, 2, 2]) == {"accuracy": 0.75}
    assert score("Accuracy", [["a", "b"], ["a"]], [["b", "a"], ["a", "c"]]) == {"accuracy": 0.5}


@pytest.mark.parametrize(("average", "value"), [("macro", 4 / 15), ("micro", 1 / 3)])
def test_f1_is_that_of_the_example_in_scikit_learns_manual(average, value):
    found = score({"kind": "F1", "average": average}, [0, 2, 1, 0, 0, 1], [0, 1, 2, 0, 1, 2])
    assert found["f1"] == pytest.approx(value)


def test_f1_of_the_positive_class_by_hand():
    # 2 are right of 3 predicted and of 4 real: P = 2/3, R = 1/2, F1 = 4/7
    predictions, references = [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1, 0]
    found = score("F1", predictions, references)
    assert found == pytest.approx({"f1": 4 / 7, "precision": 2 / 3, "recall": 1 / 2, "accuracy": 0.5})
    names = ["no", "yes"]
    line = {"kind": "F1", "positive": "yes"}
    assert score(line, [names[p] for p in predictions], [names[r] for r in references]) == pytest.approx(found)
    assert score("F1AndAccuracy", predictions, references)["mean"] == pytest.approx((4 / 7 + 0.5) / 2)


def test_f1_of_several_classes_by_hand():
    # a: 1 right of 2 predicted, 1 real; b: 1 of 1, 2; c: 0 of 0, 1
    predictions, references = [["a", "b"], ["a"]], [["a", "b"], ["b", "c"]]
    macro = score({"kind": "F1", "average": "macro"}, predictions, references)
    micro = score({"kind": "F1", "average": "micro"}, predictions, references)
    assert macro["f1"] == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert micro["f1"] == pytest.approx(2 * 2 / (3 + 4))


def test_a_positive_class_that_is_no_class_of_the_examples_is_one_line():
    with pytest.raises(ScalingError, match="no example has such a class"):
        score("F1", ["no", "yes"], ["no", "yes"])


def test_mcc_is_that_of_the_example_in_scikit_learns_manual():
    assert score("MCC", [1, -1, 1, 1], [1, 1, 1, -1])["mcc"] == pytest.approx(-1 / 3)


def test_mcc_of_two_classes_is_the_correlation_of_their_indicators():
    generator = np.random.default_rng(0)
    a, b = (generator.random((2, 200)) < 0.4).astype(int)
    assert score("MCC", list(a), list(b))["mcc"] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert score("MCC", [1, 1, 1], [0, 1, 1])["mcc"] == 0  # one class only


def test_mcc_of_three_classes_by_hand():
    # 3 of 5 are right; predicted 2, 2, 1; real 2, 1, 2: (15 − 8)/√((25 − 9)(25 − 9)) = 7/16
    assert score("MCC", list("aabbc"), list("aabcc"))["mcc"] == pytest.approx((4 * 5 - 8) / 16)


def test_correlations_are_scipys():
    generator = np.random.default_rng(1)
    a = generator.normal(size=60).round(1)
    b = (a + generator.normal(size=60)).round(0)  # with ties
    found = score("Correlation", list(a), list(b))
    assert found["pearson"] == pytest.approx(stats.pearsonr(a, b)[0])
    assert found["spearman"] == pytest.approx(stats.spearmanr(a, b)[0])
    assert found["mean"] == pytest.approx((found["pearson"] + found["spearman"]) / 2)
    assert score("Correlation", [2.1] * 60, list(b))["mean"] == 0


def test_squads_normalisation():
    assert squad("The  quick, brown fox's (a) tail!") == "quick brown foxs tail"
    assert trivia("The_quick, brown ‘fox’") == "quick brown fox"
    assert squad("U.S.") == "us"
    assert trivia("U.S.") == "u s"


def test_squads_f1_by_hand():
    # "in new york city" beside "new york": 2 shared of 4 and 2
    assert token_f1("in new york city", "new york") == pytest.approx(2 / 3)
    assert token_f1("x x y", "x z") == pytest.approx(2 * 1 / 5)
    assert token_f1("", "x") == 0
    assert score("SQuAD", ["the"], [["a"]]) == {"f1": 0, "exact_match": 1}  # as in the script of 1.1, two empty texts
    assert score("SQuAD2", ["the"], [[]])["f1"] == 1  # as in that of 2.0
    found = score("SQuAD", ["in New York City.", "The cat"], [["Boston", "New York"], ["cat", "a cat"]])
    assert found == pytest.approx({"f1": (2 / 3 + 1) / 2, "exact_match": 0.5})


def test_squad_2_counts_questions_without_an_answer():
    predictions = ["Denver Broncos", "", "1976", ""]
    references = [["Denver Broncos", "the Broncos"], [], [], ["Beyoncé"]]
    assert score("SQuAD2", predictions, references) == {
        "f1": 0.5,
        "exact_match": 0.5,
        "answerable_exact_match": 0.5,
        "answerable_f1": 0.5,
        "unanswerable_accuracy": 0.5,
    }
    assert "unanswerable_accuracy" not in score("SQuAD2", ["x"], [["x"]])


def test_aliases_by_each_rule():
    references = [["Beyoncé", "Queen Bey"], ["J.R.R. Tolkien"]]
    assert score("ExactMatch", ["the queen bey!", "JRR Tolkien"], references)["exact_match"] == 1
    trivial = {"kind": "ExactMatch", "normalisation": "trivia"}
    assert score(trivial, ["queen-bey", "J R R Tolkien"], references)["exact_match"] == 1
    assert score(trivial, ["queen bey", "JRR Tolkien"], references)["exact_match"] == 0.5
    plain = {"kind": "ExactMatch", "normalisation": "none"}
    assert score(plain, [" Queen Bey", "j.r.r. tolkien"], references)["exact_match"] == 0.5


def test_multirc_by_hand():
    # Two questions, three and two answers: the first is whole; right yes 2, predicted yes 3, real yes 3
    predictions, references, groups = [1, 0, 1, 1, 0], [1, 0, 1, 0, 1], ["p0q0"] * 3 + ["p0q1"] * 2
    found = score("MultiRC", predictions, references, groups)
    assert found == pytest.approx({"mean": (2 / 3 + 0.5) / 2, "f1a": 2 / 3, "exact_match": 0.5})
    listed = score("MultiRC", [[1, 0, 1], [1, 0]], [[1, 0, 1], [0, 1]])
    assert listed == pytest.approx(found)


def test_record_takes_the_best_reference():
    found = score("ReCoRD", ["Barack Obama", "Berlin"], [["Obama", "Michelle Obama"], ["Berlin"]])
    assert found == pytest.approx({"mean": (5 / 6 + 0.5) / 2, "f1": 5 / 6, "exact_match": 0.5})


def test_gender_parity_by_hand():
    found = score("GenderParity", [1, 1, 0, 1], [1, 1, 0, 0], ["doctor", "doctor", "nurse", "nurse"])
    assert found == {"accuracy": 0.75, "gender_parity": 0.5}


def test_entities_begin_and_end_as_conlleval_has_it():
    assert list(entities(tags("I-PER I-PER B-PER O I-LOC I-ORG"))) == [
        (0, 2, "PER"),
        (2, 3, "PER"),
        (4, 5, "LOC"),
        (5, 6, "ORG"),
    ]
    assert list(entities(tags("B-PER I-PER E-PER S-PER I-PER"))) == [(0, 3, "PER"), (3, 4, "PER"), (4, 5, "PER")]
    assert list(entities(tags("B-A I-B"))) == [(0, 1, "A"), (1, 2, "B")]
    assert list(entities([])) == []


def test_entity_f1_is_that_of_the_example_in_seqevals_manual():
    references = [tags("O O O B-MISC I-MISC I-MISC O"), tags("B-PER I-PER O")]
    predictions = [tags("O O B-MISC I-MISC I-MISC I-MISC O"), tags("B-PER I-PER O")]
    assert score("EntityF1", predictions, references) == {"f1": 0.5, "precision": 0.5, "recall": 0.5, "accuracy": 0.8}


def test_entity_f1_of_conllevals_published_counts():
    # "processed 961 tokens with 459 phrases; found: 539 phrases; correct: 371." accuracy 84.08, 68.83, 80.83, 74.35
    found = schema.build("metric", "EntityF1").values(np.array([[371.0, 539, 459, 808, 961]]))
    rounded = {name: round(100 * float(value[0]), 2) for name, value in found.items()}
    assert rounded == {"f1": 74.35, "precision": 68.83, "recall": 80.83, "accuracy": 84.08}


def test_bleu_is_that_of_the_example_in_sacrebleus_manual():
    predictions = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
    references = [
        ["The dog bit the man.", "The dog had bit the man."],
        ["It was not unexpected.", "No one was surprised."],
        ["The man bit him first.", "The man had bitten the dog."],
    ]
    assert score("BLEU", predictions, references)["bleu"] == pytest.approx(48.530827009929865)


def test_rouge_is_that_of_the_example_in_rouge_scores_manual():
    prediction, reference = "The quick brown dog jumps on the log.", "The quick brown fox jumps over the lazy dog"
    found = score("ROUGE", [prediction], [reference])
    # README: rouge1 precision 0.75, recall 2/3; rougeL precision 0.625, recall 0.5556
    assert found["rouge_1"] == pytest.approx(2 * 0.75 * (2 / 3) / (0.75 + 2 / 3))
    assert found["rouge_l"] == pytest.approx(2 * 0.625 * (5 / 9) / (0.625 + 5 / 9))


def test_rouge_l_is_over_sentences():
    """The words of a sentence in several others count together: 4 of 4 and of 5, where one line shares 2 of each."""
    found = score("ROUGE", ["c d . a b"], ["a b . c d e"])
    assert found["rouge_l"] == pytest.approx(2 * 4 / (4 + 5))
    assert score("ROUGE", ["c d\na b"], ["a b\nc d e"])["rouge_l"] == found["rouge_l"]
    assert score("ROUGE", ["c d a b"], ["a b c d e"])["rouge_l"] < found["rouge_l"]


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
