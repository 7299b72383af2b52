"""The page: nothing from outside, nothing that acts, every run in it, and the same bytes again."""

from __future__ import annotations

import csv
import logging
import re
import threading
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling
from scaling.base.errors import ScalingError
from scaling.base.markup import Code, Heading, Items, Pairs, ends, formula, percent, plain, significant, to_html
from scaling.base.printing import tag
from scaling.cli import main
from scaling.laws.catalogue import LAWS
from scaling.ledger import Ledger
from scaling.reports.answer import answer
from scaling.reports.provenance import record
from scaling.reports.sections import summary
from scaling.reports.write import headline, mirror, write
from scaling.studies.plan import enter, plan
from scaling.studies.question import read
from tests.reports.conftest import make_study

EVIL = "<script>alert(1)</script>"
NO_LAW = {"law: chinchilla": ""}


class Reader(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of each kind of element."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inside: list[tuple[str, str]] = []
        self._at = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._at = tag

    def handle_endtag(self, tag):
        self._at = ""

    def handle_data(self, data):
        self.inside.append((self._at, data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> str:
        return "".join(data for name, data in self.inside if name == tag)


def test_nothing_comes_from_outside_and_links_lead_to_files(study):
    seen = Reader(study.page.read_text(encoding="utf-8"))
    for name, attributes in seen.elements:
        assert not {"src", "srcset", "style", "action", "data", "poster"} & set(attributes), name
        assert not [key for key in attributes if key.startswith("on")], name
        assert name not in ("link", "iframe", "object", "embed", "form", "base", "img", "script")
    assert not re.search(r"url\((?!#)|@import", seen.text("style"))
    places = {one["id"] for _, one in seen.elements if "id" in one}
    links = {one["href"] for one in seen.all("a")}
    assert links
    for link in links:
        assert link[1:] in places if link.startswith("#") else (study.page.parent / link).is_file(), link
    (policy,) = [one["content"] for one in seen.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["script-src"] == "'none'"
    digest = b64encode(sha256(seen.text("style").encode()).digest()).decode()
    assert rules["style-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_headings_and_landmarks_are_in_order(study):
    seen = Reader(study.page.read_text(encoding="utf-8"))
    depths = [int(name[1]) for name, _ in seen.elements if re.fullmatch(r"h\d", name)]
    assert (depths[0], depths.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(depths))
    known = [one["id"] for _, one in seen.elements if "id" in one]
    assert len(known) == len(set(known))
    assert {one["aria-labelledby"] for one in seen.all("section")} <= set(known)
    assert all(one.get("aria-label") for one in seen.all("svg"))
    assert all(one.get("scope") in ("col", "row") for one in seen.all("th"))


def test_it_states_the_law_its_test_the_setup_and_every_run(study):
    _, found, findings, path, _ = study
    text, document, setup = path.read_text(encoding="utf-8"), findings.document, findings.document["setup"]
    assert found.question.question in text
    assert f"<strong>E = {document['estimates']['E']:.4g}" in text
    assert "The held-out run was predicted to within" in text
    assert f"{document['held_out']['points'][0]['predicted']:.4f}" in text
    assert "<code>scaling study small.yaml</code>" in text
    assert all(f"<dt>{name}</dt>" in text for name in setup)
    assert len(list(path.parent.glob("*.pdf"))) == len(findings.pictures)
    seen, runs = Reader(text), {f"run-{run.run}": run.name for run in found.runs}
    assert {one["id"] for one in seen.all("tr") if "id" in one} == set(runs)
    assert {one["href"][1:] for one in seen.all("a") if one["href"].startswith("#run-")} == set(runs)
    titles = [data for name, data in seen.inside if name == "title"]
    for name in runs.values():  # each mark shows its run and values at the pointer
        assert any(re.match(rf"{re.escape(name)}: .+, loss \d", title) for title in titles)


@pytest.mark.usefixtures("no_files_of_figures")
def test_a_text_from_a_study_cannot_act(tmp_path):
    changes = {
        "question: Does a whole study pass in seconds?": f"question: '{EVIL} & \"quotes\"'",
        "train.tokens: [2k, 4k, 8k]": f"train.tokens: [2k, 4k, 8k]\n  log.name: ['{EVIL}']",
        "law: chinchilla": "law: power_law_floor_d\n"
        f"define: {{architecture: '{EVIL}', data: '\"><img src=x onerror=f()>'}}",
    }
    ledger, found = make_study(tmp_path, changes)
    assert EVIL in found.runs[0].name
    findings, path = write(ledger, found)
    seen = Reader(path.read_text(encoding="utf-8"))
    assert not seen.all("script")
    assert not seen.all("img")
    assert EVIL in seen.text("h1")
    assert findings.document["setup"]["architecture"] == EVIL  # `define` replaces what the specs state


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_text_stays_text(text):
    element = tag("p", text, title=text)
    assert Reader(element).elements == [("p", {"title": text})]
    assert Reader(element).text("p") == text
    assert plain(tag("p", tag("b", text))) == text
    blocks = to_html([text, Heading(text), Code(text), Items([text]), Pairs({text: text})])
    assert {name for name, _ in Reader(blocks).elements} == {"p", "h3", "pre", "code", "ul", "li", "dl", "dt", "dd"}


@pytest.mark.usefixtures("no_files_of_figures")
def test_an_unfinished_study_states_how_far_it_is(tmp_path):
    ends = {0: "diverged", 3: "failed", 9: None}
    changes = {"law: chinchilla": "law: power_law_floor_d"}
    findings, path = write(*make_study(tmp_path, changes, lambda place: ends.get(place, "finished")))
    text = path.read_text(encoding="utf-8")
    assert not findings.complete
    assert ">preliminary<" in text or ">not identified<" in text
    for words in ("7 finished, 1 diverged, 2 not done", "diverged at step 3", ">failed<", "waiting, held out"):
        assert words in text
    assert "The test" not in text


def test_too_few_runs_for_a_law_are_shown_without_one(tmp_path, capsys):
    ledger, _ = make_study(tmp_path, outcome=lambda place: "finished" if place < 2 else None)
    assert main(["report", "small", f"runs={ledger.root}"]) == 0
    out, path = capsys.readouterr().out, ledger.study_folder("small") / "report" / "index.html"
    reason = "N has one value, so no law in it can be seen"
    text = unescape(path.read_text(encoding="utf-8"))
    assert all(words in text for words in (">no law yet<", reason, "2 finished, 8 not done"))
    assert 'id="law"' not in text
    assert not (path.parent / "fit.json").exists()
    assert f"There is no law: {reason}" in out
    report = scaling.report("small", runs=ledger.root, progress=False)
    assert capsys.readouterr().err == ""
    assert (f"{report}\n", report.code, report.page, len(report.points)) == (out, 0, path, 10)
    with pytest.raises(ScalingError, match="there is no law: N has one value"):
        _ = report.fit


def test_watching_a_study_that_is_done_ends_after_one_look(study):
    (look,), runs = scaling.watch("small", runs=study.ledger.root), len(study.plan.runs)
    assert str(look).startswith(f"{runs} of {runs} runs, 100% of the compute; E = ")
    assert look.to_json()["interval"]["low"] < look.to_json()["interval_of_one_look"]["low"] < 2.1


def test_a_slower_report_does_not_replace_a_newer_one(tmp_path):
    """A report that has read the ledger is overtaken, before it writes its page, by a larger study."""
    ledger, planned = make_study(tmp_path, NO_LAW, lambda place: None if place == 9 else "finished")
    file, waits = tmp_path / "small.yaml", threading.Event()
    file.write_text(file.read_text().replace("[2k, 4k, 8k]", "[2k, 4k, 8k, 16k]"))
    larger = plan(read(str(file)), [f"runs={ledger.root}"])

    def report_again() -> None:
        write(Ledger.open(ledger.root), planned, lambda step: waits.set() if "wait" in step else None)

    second = threading.Thread(target=report_again)

    def overtake(step: str) -> None:
        if step == "write the page":
            enter(ledger, larger)
            second.start()
            while second.is_alive() and not waits.wait(0.01):
                pass

    write(ledger, planned, overtake)
    second.join()
    with (ledger.study_folder("small") / "report" / "points.csv").open(newline="") as lines:
        assert [row["run"] for row in csv.DictReader(lines)] == [run.run for run in larger.runs]


def test_numbers_have_the_digits_that_their_intervals_leave_and_formulas_are_set():
    assert significant(2.20096, 2.1795, 2.2131) == "2.201"
    assert ends({"low": 2.17956, "high": 2.2131}) == "[2.180, 2.213]"
    assert ends({"low": None, "high": 2.2131}).startswith("[open, ")
    assert (percent(5.378e-5), percent(-0.0123)) == ("0.0054%", "−1.2%")
    assert formula("E + A N^-α, <b>") == "E + A N<sup>−α</sup>, &lt;b&gt;"
    assert formula("(N_c/N)^(α_N/α_D)") == "(N<sub>c</sub>/N)<sup>α<sub>N</sub>/α<sub>D</sub></sup>"
    for law in LAWS:
        assert "^" not in formula(law.formula).replace("<sup>", ""), law.name


def test_what_is_not_identified_is_stated_first_and_is_no_figure(study):
    """0.65 in [open, 34,310] was the largest number of a page."""
    ledger, plan, found, *_ = study

    def without(name: str, doubt: str, **open_ends):
        """The findings with a doubt, and one parameter that is not identified."""
        intervals = {**found.document["intervals"]}
        intervals[name] = {**intervals[name], **open_ends}
        lost = {"not_identified": [doubt], "unidentified": [name], "intervals": intervals}
        return replace(found, fit=replace(found.fit, document={**found.document, **lost}))

    doubt = "E is not separated from A by these points: the interval is open below"
    lost, known = without("E", doubt, low=None), record(found, ledger, plan)
    assert answer(lost).standing == "not identified"
    assert answer(lost).sentence.startswith("These runs do not identify the law: E is not separated")
    (_, figure, remarks), *_ = summary(lost, known)
    assert (figure, remarks[0]) == ("not identified", doubt)
    assert remarks[1].startswith(f"{found.document['n']} points, N ")
    assert answer(found).standing == "identified"
    assert next(iter(summary(found, known)))[1] == "2.098"
    # A wide exponent is no answer, and the floor still is.
    doubt = "alpha lies anywhere from 0.07 to 0.96: the interval is wider than the estimate"
    said = answer(without("alpha", doubt, low=0.07, high=0.96))
    assert said.standing == "identified in part"
    assert said.sentence.startswith(f"These runs do not identify all of the law: {doubt}")
    assert "<strong>α" not in said.sentence
    assert "levels off at" in said.sentence


# The study in W&B


def test_the_summary_has_the_law_and_trouble_with_wandb_is_one_line(study, monkeypatch, caplog):
    import wandb

    ledger, found, findings, path, _ = study
    summary, interval = headline(findings), findings.document["intervals"]["E"]
    assert (summary["law"], summary["E/low"], summary["E/high"]) == ("chinchilla", interval["low"], interval["high"])
    largest = findings.document["held_out"]["largest_relative_error"]
    assert summary["held_out/largest_relative_error"] == largest
    assert summary["entropy/known"] == findings.document["entropy"]["known"]

    def init(**choices):
        raise RuntimeError("no such\nserver")

    monkeypatch.setattr(wandb, "init", init)
    with caplog.at_level(logging.WARNING, "scaling.training.wandb_settings"):
        for mode in ("disabled", "offline"):  # disabled it calls nobody
            monkeypatch.setattr("scaling.reports.write.mode", lambda config, mode=mode: mode)
            mirror(findings, path, ledger, found)
    (line,) = caplog.records
    assert "\n" not in line.getMessage()


@pytest.mark.slow
def test_offline_it_leaves_the_table_the_figures_and_the_page(study, monkeypatch):
    ledger, found, findings, path, _ = study
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr("scaling.reports.write.mode", lambda config: "offline")
    mirror(findings, path, ledger, found)
    written = list((path.parent.parent / "wandb").rglob("*"))
    assert [path for path in written if path.suffix == ".wandb"]
    media = [path.suffix for path in written if "media" in path.parts and path.is_file()]
    assert set(media) == {".json", ".html", ".png"}
    assert media.count(".png") == len(findings.pictures)
