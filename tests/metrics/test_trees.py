"""Trees, their sequences and labelled brackets, on cases worked by hand."""

import pytest

from scaling.base.errors import ScalingError
from scaling.metrics import BracketF1
from scaling.metrics.trees import brackets, linear, parse, plain, read, repaired

CAT = "( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sits) (PP-LOC (IN on) (NP (-NONE- *T*)))) (. .)))"


def test_what_is_no_tree_is_named_by_its_file_and_line():
    for lines, stated in (
        (["(S (A b))", "(S (A b)", "  (C d)"], "2: the tree that begins here does not close: 1 of its brackets"),
        (["(S (A b))", "(S (A b)))"], "2: a bracket closes no tree"),
        (["(S (A b c))"], "1: 'c' is outside of (TAG word)"),
        (["(S (A b)", "()) "], "2: a bracket holds neither a word nor a constituent"),
    ):
        with pytest.raises(ScalingError) as error:
            list(read(lines, "wsj.mrg"))
        assert str(error.value).startswith(f"wsj.mrg:{stated}")


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


@pytest.mark.parametrize(
    ("sequence", "tree"),
    [
        ("(S (NP XX XX )NP (VP XX", RIGHT),  # open at the end
        ("(S (NP XX XX )NP (VP XX )S", RIGHT),  # S closes VP too
        ("(S (NP XX XX )NP )ADJP (VP XX )VP )S", RIGHT),  # closes nothing
        ("(S (NP XX XX )NP (VP XX XX XX )VP )S", RIGHT),  # too many words
        ("(S (NP XX )NP )S", "(S (NP (DT The)) (NN cat) (VBZ sits))"),  # too few
        ("(NP XX XX )NP (VP XX )VP", RIGHT),  # two trees
        ("(S (NP XX XX XX )NP (VP )VP )S", "(S (NP (DT The) (NN cat) (VBZ sits)))"),  # without a word
        ("", FLAT),
        (") ( )S nonsense", FLAT),
    ],
)
def test_whatever_was_written_becomes_a_tree_of_the_sentence(sequence, tree):
    assert str(repaired(sequence, WORDS)) == tree
    assert str(repaired("", WORDS[:1])) == "(S (DT The))"  # a sentence of one word has a constituent too


def test_brackets_count_as_evalb_counts_them():
    # Words are 0 The, 1 cat, 2 sits, 3 on: the full stop is taken out, and with it the trace and its NP.
    assert dict(brackets(parse(CAT))) == {("S", 0, 4): 1, ("NP", 0, 2): 1, ("VP", 2, 4): 1, ("PP", 3, 4): 1}
    assert brackets(parse("(S (PRT (RP up)))")) == brackets(parse("(S (ADVP (RP up)))"))
    assert brackets(parse("(TOP (S (NP (NP (NN a)))))"))["NP", 0, 1] == 2


def test_f1_of_three_trees_by_hand():
    """Brackets right / predicted / real: 4/4/4, then 2/3/4 (NP over three words, no VP), then 1/1/3."""
    eats, rains = "(S (NP (DT the) (NN dog)) (VP (VBZ eats) (NP (NN meat))))", "(S (NP (PRP it)) (VP (VBZ rains)))"
    predictions = ["(S (NP XX XX )NP (VP XX (PP XX )PP )VP XX )S", "(S (NP XX XX XX )NP (NP XX )NP )S", None]
    scores = BracketF1().score(predictions, [["-", CAT], ["-", eats], ["-", rains]])
    expected = {"precision": (4 + 2 + 1) / (4 + 3 + 1), "recall": 7 / (4 + 4 + 3), "f1": 2 * 7 / (8 + 11)}
    assert scores == pytest.approx({**expected, "complete": 1 / 3})
