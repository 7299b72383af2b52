"""The page: nothing from outside, nothing that acts, every run in it, and the same bytes again."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

import scaling
from scaling.cli import main
from scaling.errors import ScalingError
from scaling.reports.keep import keep
from scaling.reports.page import page, record
from scaling.reports.write import write
from scaling.studies.plan import plan
from scaling.studies.question import read

EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of scripts and style sheets."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inside: list[tuple[str, str]] = []
        self._at = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))  # `hidden` is `hidden=""`
        self._at = tag

    def handle_endtag(self, tag):
        self._at = ""

    def handle_data(self, data):
        self.inside.append((self._at, data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> str:
        return "".join(data for name, data in self.inside if name == tag)


@pytest.fixture(scope="module")
def text(study):
    return study[3].read_text(encoding="utf-8")


def test_nothing_comes_from_outside(text):
    seen = Reader(text)
    for name, attributes in seen.elements:
        assert not {"src", "srcset", "style", "action", "data", "poster"} & set(attributes), name
        assert not [key for key in attributes if key.startswith("on")], name
        assert name not in ("link", "iframe", "object", "embed", "form", "base", "img")
    links = [one["href"] for one in seen.all("a")]
    assert links
    assert not [link for link in links if re.match(r"\w+:|//", link)]
    assert not re.search(r"url\((?!#)|@import", seen.text("style"))


def test_links_lead_to_files(study, text):
    folder = study[3].parent
    seen = Reader(text)
    places = {one["id"] for _, one in seen.elements if "id" in one}
    for link in {one["href"] for one in seen.all("a")}:
        assert link[1:] in places if link.startswith("#") else (folder / link).is_file(), link


def test_the_policy_lets_only_its_own_style_act(text):
    seen = Reader(text)
    (policy,) = [one["content"] for one in seen.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert rules["script-src"] == "'none'"
    assert not seen.all("script")
    assert len(seen.all("style")) == 1
    digest = b64encode(sha256(seen.text("style").encode()).digest()).decode()
    assert rules["style-src"] == f"'sha256-{digest}'"


def test_headings_and_landmarks_are_in_order(text):
    seen = Reader(text)
    depths = [int(name[1]) for name, _ in seen.elements if re.fullmatch(r"h\d", name)]
    assert depths[0] == 1
    assert depths.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(depths))
    for landmark in ("header", "main", "footer"):
        assert len(seen.all(landmark)) == 1
    known = [one["id"] for _, one in seen.elements if "id" in one]
    assert len(known) == len(set(known))
    assert {one["aria-labelledby"] for one in seen.all("section")} <= set(known)
    assert all(one.get("aria-label") for one in seen.all("svg") if one.get("role") == "img")
    assert all(one.get("scope") in ("col", "row") for one in seen.all("th"))
    assert seen.all("html")[0]["lang"] == "en"


def test_every_run_is_in_the_table_and_every_finished_one_in_the_figures(study, text):
    _, found, _, _ = study
    seen = Reader(text)
    rows = {one["data-run"] for one in seen.all("tr") if "data-run" in one}
    marks = {one["href"].removeprefix("#run-") for one in seen.all("a") if one["href"].startswith("#run-")}
    assert rows == {one.run for one in found.runs}
    assert marks == rows
    titles = [data for name, data in seen.inside if name == "title"]
    for one in found.runs:  # each mark shows its run and values at the pointer
        assert any(re.match(rf"{re.escape(one.name)}: .+, loss \d", title) for title in titles)


def test_it_says_the_law_its_interval_and_its_test(study, text):
    _, found, findings, _ = study
    document = findings.document
    assert found.question.question in text
    assert f"<strong>E = {document['estimates']['E']:.4g}" in text
    held = document["held_out"]
    assert held["n"] == 1
    assert "The held-out run was predicted to within" in text
    assert f"{document['held_out']['points'][0]['predicted']:.4f}" in text
    assert "<code>scaling study small.yaml</code>" in text
    assert len(text) < 400_000


def test_figures_stand_beside_the_page(study):
    _, _, findings, path = study
    assert (path.parent / "fit.json").exists()
    assert sorted(one.suffix for one in path.parent.iterdir()).count(".pdf") == len(findings.pictures)


def test_a_text_from_a_study_cannot_act(made_study, tmp_path):
    changes = {
        "question: Does a whole study pass in seconds?": f"question: '{EVIL} & \"quotes\"'",
        "train.tokens: [2k, 4k, 8k]": f"train.tokens: [2k, 4k, 8k]\n  log.name: ['{EVIL}']",
        "law: chinchilla": f"law: chinchilla\ndefine: {{architecture: '{EVIL}', data: '\"><img src=x onerror=f()>'}}",
    }
    ledger, found = made_study(tmp_path, changes)
    assert EVIL in found.runs[0].name
    text = write(ledger, found)[1].read_text(encoding="utf-8")
    seen = Reader(text)
    assert not seen.all("script")
    assert not seen.all("img")
    assert EVIL in seen.text("h1")
    for picture in (tmp_path / "runs").rglob("*.html"):
        assert EVIL not in picture.read_text()


def test_an_unfinished_study_says_how_far_it_is(made_study, tmp_path):
    ends = {0: "diverged", 3: "failed", 9: None}
    ledger, found = made_study(tmp_path, outcome=lambda place: ends.get(place, "finished"))
    findings, path = write(ledger, found)
    text = path.read_text(encoding="utf-8")
    assert not findings.complete
    assert ">preliminary<" in text or ">not identified<" in text
    assert "7 finished, 1 diverged, 2 not done" in text
    assert "diverged at step 3" in text
    assert ">failed<" in text
    assert "waiting, held out" in text
    assert "The test" not in text


def test_too_few_runs_for_a_law_are_shown_without_one(made_study, tmp_path):
    ledger, found = made_study(tmp_path, outcome=lambda place: "finished" if place < 2 else None)
    findings, path = write(ledger, found)
    text = path.read_text(encoding="utf-8")
    assert findings.document is None
    assert ">no law yet<" in text
    assert findings.reason is not None
    assert findings.reason in unescape(text)
    assert 'id="law"' not in text
    assert "2 finished, 8 not done" in text
    assert not (path.parent / "fit.json").exists()


def test_the_same_runs_give_the_same_bytes(study, text):
    ledger, found, findings, _ = study
    assert page(findings, record(findings, ledger, found)) == text


def test_the_command_tells_where_the_page_is(made_study, tmp_path, capsys):
    ledger, _ = made_study(tmp_path, outcome=lambda place: "finished" if place < 2 else None)
    assert main(["report", "small", f"runs={ledger.root}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["law"] is None
    assert told["reason"] == "N has one value, so no law in it can be seen"
    assert told["page"] == str(tmp_path / "runs" / "studies" / "small" / "report" / "index.html")
    assert main(["report", "small", f"runs={ledger.root}"]) == 0
    out, _ = capsys.readouterr()
    assert "There is no law: N has one value" in out
    report = scaling.report("small", runs=ledger.root, progress=False)
    assert capsys.readouterr().err == ""
    assert (f"{report}\n", report.code, report.page) == (out, 0, report.report())
    assert len(report.points) == 10
    with pytest.raises(ScalingError, match="there is no law: N has one value"):
        _ = report.fit


def test_watching_a_study_that_is_done_ends_after_one_look(study, capsys):
    ledger, found, *_ = study
    (look,) = scaling.watch("small", runs=ledger.root, wandb=False)
    assert main(["watch", "small", f"runs={ledger.root}", "--json"]) == 0
    assert {"schema": 1, **look.to_json()} == json.loads(capsys.readouterr().out)
    assert str(look).startswith(f"{len(found.runs)} of {len(found.runs)} runs, 100% of the compute; E = ")
    assert main(["watch", "small", f"runs={ledger.root}", "--every", "0"]) == 2


def test_a_kept_report_needs_no_ledger(study, tmp_path):
    ledger, found, findings, path = study
    there = keep(findings, path, ledger, found, tmp_path)
    kept = (there / "index.html").read_text(encoding="utf-8")
    links = {one["href"] for one in Reader(kept).all("a") if not one["href"].startswith("#")}
    assert "points.csv" in links
    assert all((there / link).is_file() for link in links)
    paragraph = (there / "README.md").read_text(encoding="utf-8")
    assert paragraph.startswith("# small: identified\n")
    assert found.question.question in paragraph
    assert all((there / link).is_file() for link in re.findall(r"\]\(([^)]+)\)", paragraph))
    again = plan(read(str(there / "small.yaml")), [f"runs={tmp_path / 'runs'}"])
    assert [one.run for one in again.runs] == [one.run for one in found.runs]


@pytest.mark.parametrize("words", [["small"], ["smal"], []])
def test_what_cannot_be_reported_is_one_line(made_study, tmp_path, words, capsys):
    made_study(tmp_path, outcome=lambda place: None)
    assert main(["report", *words, f"runs={tmp_path / 'runs'}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_what_every_run_states_is_answered_from_the_specs(study):
    _, _, findings, page = study
    setup, text = findings.document["setup"], page.read_text(encoding="utf-8")
    assert setup["tokenizer"].startswith("none: the data are symbols")
    assert "WSD (" in setup["schedule"]
    assert all(f"<dt>{name}</dt>" in text for name in setup)


def test_what_define_answers_stands_in_place_of_the_specs(made_study, tmp_path):
    changes = {"law: chinchilla": "law: power_law_floor_d\ndefine: {optimizer: a rule of my own}"}
    ledger, found = made_study(tmp_path, changes)
    findings, _ = write(ledger, found)
    assert findings.document["setup"]["optimizer"] == "a rule of my own"
    assert findings.document["setup"]["data"].startswith("Synthetic")


def test_a_report_states_its_steps_and_a_copy_keeps_its_answers(study, tmp_path, capsys):
    ledger, found, findings, path = study
    there = keep(findings, path, ledger, found, tmp_path)
    kept = scaling.report(str(there))
    assert kept.findings.document["setup"] == findings.document["setup"]  # a copy has no specs
    assert kept.fit.estimates == kept.to_json()["estimates"] == pytest.approx(findings.document["estimates"])
    assert kept.page == there / "index.html"
    assert "on_record" not in kept.to_json()
    capsys.readouterr()
    assert main(["report", "small", f"runs={ledger.root}", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["law"] == "chinchilla"
    steps = [line.removeprefix("scaling: ") for line in err.splitlines()]
    assert steps == ["read 16 runs", "fit chinchilla to 15 runs", "draw 6 figures", "write the page"]
