"""Every shipped task as its set is laid out: a few rows with the columns that the set has, and what is read of one."""

from typing import Any

import datasets

COUNT = 20
Rows = list[dict[str, Any]]
Layout = tuple[Rows, dict[str, Any], tuple[tuple[str, ...], Any, str]]
"""Rows of a set, its features that are not plain, and the texts, the answer and the target of the first example."""


def rows(texts, **varied):
    """Rows whose texts differ from one another; other columns take turns."""
    return [
        {key: f"{value} ({number})" for key, value in texts.items()}
        | {key: values[number % len(values)] for key, values in varied.items()}
        for number in range(COUNT)
    ]


def classes(texts, names, first, *, shown=None, label="label", **more):
    """Classes by number, the first row's first; `shown` are its texts where they are not those of the columns."""
    numbers = [*range(first, len(names)), *range(first)]
    example = (shown or tuple(f"{text} (0)" for text in texts.values()), first, names[first])
    return rows(texts, **{label: numbers}, **more), {label: datasets.ClassLabel(names=names)}, example


def written(text, right, texts, **more):
    return rows(texts, **more), {}, ((text,), right, right[0])


def span(answer, *others):
    places = [{"text": [one], "answer_start": [CONTEXT.index(one)]} if one else NONE for one in (answer, *others)]
    of_one = rows({"question": "who?"}, context=[CONTEXT], title=["t"], id=["q"], answers=places)
    return of_one, {}, (("who? (0)", CONTEXT), [answer], answer or "")


CONTEXT, NONE = "Ann met Bob in Rome in 1999.", {"text": [], "answer_start": []}
PAIR = {"sentence1": "It rains.", "sentence2": "It is wet."}
PREMISE = {"premise": "It rains.", "hypothesis": "It is wet."}
ENTAILED, TRUE = ["entailment", "not_entailment"], ["False", "True"]
NLI = ["entailment", "neutral", "contradiction"]
TAGS = datasets.ClassLabel(names=["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"])
MULTIRC, QUESTION = {"paragraph": "p", "question": "q", "answer": "a"}, {"question": "who?"}
TRIVIA = {"value": "Me", "aliases": ["I", "Me"], "normalized_aliases": ["i"]}
REVIEWS = ("movie_reviews", "movie_reviews_bytes")
TREE, SEQUENCE = "(S (NP (PRP It)) (CD 0))", "(S (NP XX )NP XX )S"

LAYOUTS: dict[str, Layout] = {
    "cola": classes({"sentence": "He go"}, ["unacceptable", "acceptable"], 0, idx=[0]),
    "sst2": classes({"sentence": "fine"}, ["negative", "positive"], 1),
    "mrpc": classes(PAIR, ["not_equivalent", "equivalent"], 1),
    "stsb": (rows(PAIR, label=[3.75, 0.0]), {}, (("It rains. (0)", "It is wet. (0)"), 3.75, "3.8")),
    "qqp": classes({"question1": "a", "question2": "b"}, ["not_duplicate", "duplicate"], 0),
    **dict.fromkeys(("mnli", "mnli_mismatched"), classes(PREMISE, NLI, 2)),
    "qnli": classes({"question": "who?", "sentence": "me"}, ENTAILED, 0),
    "rte": classes(PAIR, ENTAILED, 1),
    "wnli": classes(PAIR, ["not_entailment", "entailment"], 1),
    "boolq": classes({"question": "is it", "passage": "it is"}, TRUE, 1),
    "cb": classes(PREMISE, ["entailment", "contradiction", "neutral"], 1),
    "copa": (
        rows({"premise": "It rained.", "choice1": "sun", "choice2": "clouds"}, question=["cause"], label=[1, 0]),
        {"label": datasets.ClassLabel(names=["choice1", "choice2"])},
        (("It rained. (0) What was the cause?", "sun (0)", "clouds (0)"), 1, "clouds (0)"),
    ),
    "multirc": classes(MULTIRC, TRUE, 1, shown=("p (0)", "q (0) a (0)"), idx=[dict.fromkeys(MULTIRC, 0)]),
    "record": (
        rows({"passage": "A met B.", "query": "@ won"}, entities=[["A", "B", "C"], ["A", "B"]], answers=[["B", "A"]]),
        {},
        (("A met B. (0) @ won (0)", "A", "B", "C"), ["B", "A"], "B"),
    ),
    **dict.fromkeys(("super_glue_rte", "axb", "axg"), classes(PREMISE, ENTAILED, 1)),
    "wic": classes(PAIR, TRUE, 1, shown=("wet: It rains. (0)", "It is wet. (0)"), word=["wet"]),
    "wsc": classes({"text": "Al saw"}, TRUE, 0, shown=("Al saw (0)", "he: Al"), span1_text=["Al"], span2_text=["he"]),
    "imdb": classes({"text": "good"}, ["neg", "pos"], 1),
    "snli": (rows(PREMISE, label=[0, -1, 2, 1]), *classes(PREMISE, NLI, 0)[1:]),
    "scitail": (rows(PREMISE, label=["neutral", "entails"]), {}, classes(PREMISE, ["entails", "neutral"], 1)[2]),
    "trec": classes({"text": "who is it ?"}, ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"], 3, label="coarse_label"),
    **{name: (rows({"text": "good"}, label=["pos", "neg"]), {}, (("good (0)",), 1, "pos")) for name in REVIEWS},
    "conll2003": (
        rows({}, tokens=[["Ann", "left", "New", "York"], ["He", "left"]], ner_tags=[[1, 0, 5, 6], [0, 0]]),
        {"ner_tags": datasets.Sequence(TAGS)},
        (("Ann", "left", "New", "York"), ["B-PER", "O", "B-LOC", "I-LOC"], "B-PER O B-LOC I-LOC"),
    ),
    "conll2003_pos": (
        rows({}, tokens=[["Ann", "left"], ["He", "left"], ["It", "fell"]], pos_tags=[["NNP", "VBD"], ["PRP", "VBD"]]),
        {},
        (("Ann", "left"), ["NNP", "VBD"], "NNP VBD"),
    ),
    "squad1": span("Ann"),
    "squad2": span("in Rome", None),
    "webquestions": written("who? (0)", ["me", "I"], QUESTION, url=["u"], answers=[["me", "I"]]),
    "natural_questions": written("who? (0)", ["me"], QUESTION, answer=[["me"]]),
    "trivia_qa": written("who? (0)", ["Me", "I"], QUESTION, answer=[TRIVIA]),
    "summarize_xsum": written("It rains. (0)", ["Rain."], {"document": "It rains."}, summary=["Rain."]),
    "summarize_cnn_dailymail": written("It rains. (0)", ["Rain."], {"article": "It rains."}, highlights=["Rain."]),
    "wikisum": written("Rain (0)\nIt. (0)", ["Wet."], {"title": "Rain", "paragraphs": "It."}, lead=["Wet."]),
    "translate_multi30k_de_en": written("Es. (0)", ["It rains on us."], {"de": "Es."}, en=["It rains on us."]),
    "dialogue": written("<ann> Hi. (0)", ["Hi there, ann!"], {"history": "<ann> Hi."}, reply=["Hi there, ann!"]),
    "parse_treebank": written("It (0)", [SEQUENCE, TREE], {"words": "It"}, tree=[TREE], sequence=[SEQUENCE]),
}
for set_, language in (("wmt14_en_de", "de"), ("wmt14_en_fr", "fr"), ("wmt16_en_ro", "ro")):
    both = [{"en": f"It rains. ({number})", language: "Il pleut sur la ville."} for number in range(COUNT)]
    LAYOUTS[f"translate_{set_}"] = written("It rains. (0)", ["Il pleut sur la ville."], {}, translation=both)

LOCAL = {*REVIEWS, "wikisum", "parse_treebank", "dialogue"}  # on no hub
