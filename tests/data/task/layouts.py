"""Every shipped task as its set is laid out: a few rows with the columns that the set has, and what is read of one."""

from __future__ import annotations

from typing import Any

import datasets

PAIR = {"sentence1": "It rains.", "sentence2": "It is wet."}
PREMISE = {"premise": "It rains.", "hypothesis": "It is wet."}
RAIN = ("It rains. (0)", "It is wet. (0)")
CONTEXT = "Ann met Bob in Rome in 1999."


def answers(text: str | None) -> dict[str, list[Any]]:
    return {"text": [], "answer_start": []} if text is None else {"text": [text], "answer_start": [CONTEXT.index(text)]}


def rows(count: int, columns: dict[str, Any], **varied: list[Any]) -> list[dict[str, Any]]:
    """Rows whose texts differ from one another."""
    made = []
    for number in range(count):
        row = {key: f"{value} ({number})" if isinstance(value, str) else value for key, value in columns.items()}
        made.append({**row, **{key: values[number % len(values)] for key, values in varied.items()}})
    return made


def names(*labels: str) -> datasets.ClassLabel:
    return datasets.ClassLabel(names=list(labels))


ENTAILED = names("entailment", "not_entailment")
TRUE = names("False", "True")
NLI = names("entailment", "neutral", "contradiction")
TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
QUESTION = {"context": CONTEXT, "title": "t", "id": "q"}

# Columns of each task's set, features that are not plain, and the first example's texts, answer and target.
Layout = tuple[list[dict[str, Any]], dict[str, Any], tuple[tuple[str, ...], Any, str]]
LAYOUTS: dict[str, Layout] = {
    "cola": (
        rows(9, {"sentence": "He go"}, label=[0, 1], idx=[0]),
        {"label": names("unacceptable", "acceptable")},
        (("He go (0)",), 0, "unacceptable"),
    ),
    "sst2": (
        rows(9, {"sentence": "fine"}, label=[1, 0]),
        {"label": names("negative", "positive")},
        (("fine (0)",), 1, "positive"),
    ),
    "mrpc": (rows(9, PAIR, label=[1, 0]), {"label": names("not_equivalent", "equivalent")}, (RAIN, 1, "equivalent")),
    "stsb": (rows(9, PAIR, label=[3.75, 0.0]), {}, (RAIN, 3.75, "3.8")),
    "qqp": (
        rows(9, {"question1": "a", "question2": "b"}, label=[0, 1]),
        {"label": names("not_duplicate", "duplicate")},
        (("a (0)", "b (0)"), 0, "not_duplicate"),
    ),
    "mnli": (rows(9, PREMISE, label=[2, 0, 1]), {"label": NLI}, (RAIN, 2, "contradiction")),
    "qnli": (
        rows(9, {"question": "who?", "sentence": "me"}, label=[0, 1]),
        {"label": ENTAILED},
        (("who? (0)", "me (0)"), 0, "entailment"),
    ),
    "rte": (rows(9, PAIR, label=[1, 0]), {"label": ENTAILED}, (RAIN, 1, "not_entailment")),
    "wnli": (rows(9, PAIR, label=[1, 0]), {"label": names("not_entailment", "entailment")}, (RAIN, 1, "entailment")),
    "boolq": (
        rows(9, {"question": "is it", "passage": "it is"}, label=[1, 0]),
        {"label": TRUE},
        (("is it (0)", "it is (0)"), 1, "True"),
    ),
    "cb": (
        rows(9, PREMISE, label=[1, 0, 2]),
        {"label": names("entailment", "contradiction", "neutral")},
        (RAIN, 1, "contradiction"),
    ),
    "copa": (
        rows(9, {"premise": "It rained.", "choice1": "sun", "choice2": "clouds"}, question=["cause"], label=[1, 0]),
        {"label": names("choice1", "choice2")},
        (("It rained. (0) What was the cause?", "sun (0)", "clouds (0)"), 1, "clouds (0)"),
    ),
    "multirc": (
        rows(
            9,
            {"paragraph": "p", "question": "q", "answer": "a"},
            idx=[{"paragraph": 0, "question": 3, "answer": 1}],
            label=[1, 0],
        ),
        {"label": TRUE},
        (("p (0)", "q (0) a (0)"), 1, "True"),
    ),
    "record": (
        rows(
            9, {"passage": "A met B.", "query": "@ won"}, entities=[["A", "B", "C"], ["A", "B"]], answers=[["B", "A"]]
        ),
        {},
        (("A met B. (0) @ won (0)", "A", "B", "C"), ["B", "A"], "B"),
    ),
    "super_glue_rte": (rows(9, PREMISE, label=[1, 0]), {"label": ENTAILED}, (RAIN, 1, "not_entailment")),
    "wic": (
        rows(9, PAIR, word=["wet"], label=[1, 0]),
        {"label": TRUE},
        (("wet: It rains. (0)", "It is wet. (0)"), 1, "True"),
    ),
    "wsc": (
        rows(9, {"text": "Al saw Bo and he left"}, span1_text=["Al"], span2_text=["he"], label=[0, 1]),
        {"label": TRUE},
        (("Al saw Bo and he left (0)", "he: Al"), 0, "False"),
    ),
    "imdb": (rows(20, {"text": "good"}, label=[1, 0]), {"label": names("neg", "pos")}, (("good (0)",), 1, "pos")),
    "snli": (rows(9, PREMISE, label=[0, -1, 2, 1]), {"label": NLI}, (RAIN, 0, "entailment")),
    "scitail": (rows(9, PREMISE, label=["neutral", "entails"]), {}, (RAIN, 1, "neutral")),
    "conll2003": (
        rows(9, {}, tokens=[["Ann", "left", "New", "York"], ["He", "left"]], ner_tags=[[1, 0, 5, 6], [0, 0]]),
        {"ner_tags": datasets.Sequence(names(*TAGS))},
        (("Ann", "left", "New", "York"), ["B-PER", "O", "B-LOC", "I-LOC"], "B-PER O B-LOC I-LOC"),
    ),
    "conll2003_pos": (
        rows(
            9, {}, tokens=[["Ann", "left"], ["He", "left"], ["It", "fell"]], pos_tags=[["NNP", "VBD"], ["PRP", "VBD"]]
        ),
        {},
        (("Ann", "left"), ["NNP", "VBD"], "NNP VBD"),
    ),
    "squad1": (
        rows(9, {"question": "who?"}, **{key: [value] for key, value in QUESTION.items()}, answers=[answers("Ann")]),
        {},
        (("who? (0)", CONTEXT), ["Ann"], "Ann"),
    ),
    "squad2": (
        rows(9, {"question": "who?"}, context=[CONTEXT], answers=[answers("in Rome"), answers(None)]),
        {},
        (("who? (0)", CONTEXT), ["in Rome"], "in Rome"),
    ),
    "trec": (
        rows(20, {"text": "who is it ?"}, coarse_label=[3, 0, 1, 2, 4, 5], fine_label=[0]),
        {"coarse_label": names("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")},
        (("who is it ? (0)",), 3, "HUM"),
    ),
    "movie_reviews": (rows(20, {"text": "good"}, label=["pos", "neg"]), {}, (("good (0)",), 1, "pos")),
    "movie_reviews_bytes": (rows(20, {"text": "good"}, label=["pos", "neg"]), {}, (("good (0)",), 1, "pos")),
    "wikisum": (
        rows(9, {"title": "Rain", "paragraphs": "It rains."}, lead=["Rain is wet."]),
        {},
        (("Rain (0)\nIt rains. (0)",), ["Rain is wet."], "Rain is wet."),
    ),
    "webquestions": (
        rows(20, {"question": "who?", "url": "u"}, answers=[["me", "I"]]),
        {},
        (("who? (0)",), ["me", "I"], "me"),
    ),
    "natural_questions": (rows(9, {"question": "who"}, answer=[["me"]]), {}, (("who (0)",), ["me"], "me")),
    "trivia_qa": (
        rows(9, {"question": "who?"}, answer=[{"value": "Me", "aliases": ["I", "Me"], "normalized_aliases": ["i"]}]),
        {},
        (("who? (0)",), ["Me", "I"], "Me"),
    ),
    "summarize_xsum": (
        rows(9, {"document": "It rains.", "id": "1"}, summary=["Rain."]),
        {},
        (("It rains. (0)",), ["Rain."], "Rain."),
    ),
    "summarize_cnn_dailymail": (
        rows(9, {"article": "It rains.", "id": "1"}, highlights=["Rain."]),
        {},
        (("It rains. (0)",), ["Rain."], "Rain."),
    ),
}
TREE = "(S (NP (PRP It)) (VP (VBZ rains) (CD 0)))"
LAYOUTS["mnli_mismatched"] = LAYOUTS["mnli"]
LAYOUTS["axb"] = LAYOUTS["axg"] = LAYOUTS["super_glue_rte"]
AX_B = rows(9, {"sentence1": "It pours.", "sentence2": "It is wet."}, label=[1, 0])
for name, language in (("wmt14_en_de", "de"), ("wmt14_en_fr", "fr"), ("wmt16_en_ro", "ro")):
    sides = [{"en": f"It rains. ({number})", language: "Il pleut sur la ville."} for number in range(9)]
    answer = (("It rains. (0)",), ["Il pleut sur la ville."], "Il pleut sur la ville.")
    LAYOUTS[f"translate_{name}"] = (rows(9, {}, translation=sides), {}, answer)
LAYOUTS["translate_multi30k_de_en"] = (
    [{"de": f"Es regnet. ({number})", "en": "It rains on the town."} for number in range(9)],
    {},
    (("Es regnet. (0)",), ["It rains on the town."], "It rains on the town."),
)
LAYOUTS["dialogue"] = (
    [{"history": f"<ann> Hello {number}. <bob>", "reply": "Hi there, ann, on this day!"} for number in range(9)],
    {},
    (("<ann> Hello 0. <bob>",), ["Hi there, ann, on this day!"], "Hi there, ann, on this day!"),
)
LAYOUTS["parse_treebank"] = (
    [{"words": f"It rains {n}", "tree": TREE, "sequence": "(S (NP XX )NP (VP XX XX )VP )S"} for n in range(9)],
    {},
    (("It rains 0",), ["(S (NP XX )NP (VP XX XX )VP )S", TREE], "(S (NP XX )NP (VP XX XX )VP )S"),
)
