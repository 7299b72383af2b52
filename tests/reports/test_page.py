"""The page: nothing from outside, nothing that acts, every run and row in it; and kept reports without a ledger."""

import json
import logging
import re
import shutil
import threading
from base64 import b64encode
from dataclasses import replace
from functools import partial
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling
from scaling.base.errors import ScalingError
from scaling.base.markup import Code, Heading, Items, Pairs, formula, plain, to_html
from scaling.base.printing import tag
from scaling.config.compose import load
from scaling.laws.points import SETUP
from scaling.ledger import Ledger
from scaling.ledger import document as documents
from scaling.ledger.document import seal
from scaling.reports.answer import advantages, answer, exponents
from scaling.reports.figures import figures
from scaling.reports.provenance import record, setup
from scaling.reports.sections import rows, summary
from scaling.reports.write import fit_again, headline, mirror, write
from scaling.studies.adaptive import decide
from scaling.studies.plan import enter, plan
from scaling.studies.predictions import register
from scaling.studies.question import read
from scaling.training.experiment import assemble
from scaling.verbs.command_line import main
from scaling.verbs.fit import read_curves
from tests import command_line
from tests.reports.conftest import SMALL, make_study
from tests.studies.test_study import DOCUMENT, finish

refused = partial(command_line.refused, but=r"^scaling: [^:]*$")  # lines of progress
EVIL = "<script>alert(1)</script>"
NO_LAW = {"law: chinchilla": ""}


class Reader(HTMLParser):
    """What a browser would find: elements with their attributes, and the text of each kind of element."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.inside, self.at = list[tuple[str, dict[str, str]]](), list[tuple[str, str]](), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.at = tag

    def handle_endtag(self, tag):
        self.at = ""

    def handle_data(self, data):
        self.inside.append((self.at, data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> str:
        return "".join(data for name, data in self.inside if name == tag)


def test_nothing_comes_from_outside_links_lead_to_files_and_landmarks_are_in_order(study):
    seen = Reader(study.page.read_text(encoding="utf-8"))
    acts = {"src", "srcset", "style", "action", "data", "poster"}
    for name, attributes in seen.elements:
        assert not [key for key in attributes if key in acts or key.startswith("on")], name
        assert name not in ("link", "iframe", "object", "embed", "form", "base", "img", "script")
    assert not re.search(r"url\((?!#)|@import", seen.text("style"))
    places = [one["id"] for _, one in seen.elements if "id" in one]
    assert len(places) == len(set(places))
    for link in {one["href"] for one in seen.all("a")}:
        file, _, place = link.partition("#")
        assert (study.page.parent / file).is_file() if file else place in places, link
    (policy,) = [one["content"] for one in seen.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["script-src"] == "'none'"
    digest = b64encode(sha256(seen.text("style").encode()).digest()).decode()
    assert rules["style-src"] == f"'sha256-{digest}'"
    depths = [int(name[1]) for name, _ in seen.elements if re.fullmatch(r"h\d", name)]
    assert (depths[0], depths.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(depths))
    assert {one["aria-labelledby"] for one in seen.all("section")} <= set(places)
    assert all(one.get("aria-label") for one in seen.all("svg"))
    assert all(one.get("scope") in ("col", "row") for one in seen.all("th"))


def test_links_to_a_figure_name_its_page_and_escape_its_name(study):
    picture = study.findings.pictures["residuals"]
    fit = replace(study.findings.fit, drawn=lambda _: {"residuals": picture, "task #1?": picture})
    (shown,) = figures(replace(study.findings, fit=fit), ["task #1?"])
    assert [one["href"] for one in Reader(shown.caption).all("a")] == ["figures.pdf#page=2", "task%20%231%3F.png"]


def test_it_states_the_law_its_test_the_setup_and_every_run(study):
    _, found, findings, path, _ = study
    text, document = path.read_text(encoding="utf-8"), findings.document
    assert found.question.question in text
    assert f"<strong>E = {document['estimates']['E']:.4g}" in text
    assert "E + A N<sup>−α</sup> + B D<sup>−β</sup>" in text
    assert f"{document['held_out']['points'][0]['predicted']:.4f}" in text
    assert "<code>scaling study small.yaml</code>" in text
    assert all(f"<dt>{name}</dt>" in text for name in document["setup"])
    assert (path.parent / "figures.pdf").read_bytes().count(b"/Type /Page ") == len(findings.pictures)
    seen, runs = Reader(text), {f"run-{run.run}": run.name for run in found.runs}
    assert {one["id"] for one in seen.all("tr") if "id" in one} == set(runs)
    assert {one["href"][1:] for one in seen.all("a") if one["href"].startswith("#run-")} == set(runs)
    titles = "\n".join(data for name, data in seen.inside if name == "title")
    for name in runs.values():  # each mark shows its run and values at the pointer
        assert re.search(rf"^{re.escape(name)}: .+, loss \d", titles, re.MULTILINE)


def test_a_text_from_a_study_or_from_the_record_of_a_kept_one_cannot_act(tmp_path):
    changes = {
        "question: Does a whole study pass in seconds?": f"question: '{EVIL} & \"quotes\"'",
        "train.tokens: [2k, 4k, 8k]": f"train.tokens: [2k, 4k, 8k]\n  log.name: ['{EVIL}']",
        "law: chinchilla": "law: power_law_floor_d\n"
        f"define: {{architecture: '{EVIL}', data: '\"><img src=x onerror=f()>'}}",
    }
    ledger, found = make_study(tmp_path, changes)
    assert EVIL in found.runs[0].name
    findings, kept = write(ledger, found, kept=tmp_path / "kept")
    assert findings.document["setup"]["architecture"] == EVIL  # `define` replaces what the specs state
    record = kept.with_name("record.json")
    words = json.loads(record.read_text())
    words |= {"command": EVIL, "day": EVIL, "circumstances": {EVIL: EVIL}}
    words["runs"] = {run: {"state": EVIL, "time": EVIL, "address": "javascript:f()"} for run in words["runs"]}
    record.write_text(json.dumps(words))
    for page in (ledger.study_folder("small") / "report" / "index.html", fit_again(kept.parent)[1]):
        seen = Reader(page.read_text(encoding="utf-8"))
        assert not seen.all("script") + seen.all("img")
        assert not [one for one in seen.all("a") if "javascript" in one["href"]]
        assert EVIL in seen.text("h1")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_text_stays_text(text):
    element = tag("p", text, title=text)
    assert Reader(element).elements == [("p", {"title": text})]
    assert Reader(element).text("p") == text
    assert plain(tag("p", tag("b", text))) == text
    assert {name for name, _ in Reader(formula(text)).elements} <= {"sup", "sub"}
    blocks = to_html([text, Heading(text), Code(text), Items([text]), Pairs({text: text})])
    assert {name for name, _ in Reader(blocks).elements} == {"p", "h3", "pre", "code", "ul", "li", "dl", "dt", "dd"}


def test_an_unfinished_study_states_how_far_it_is(tmp_path):
    ended, changes = {0: "diverged", 3: "failed", 9: None}, {"law: chinchilla": "law: power_law_floor_d"}
    findings, path = write(*make_study(tmp_path, changes, lambda place: ended.get(place, "finished")))
    text = path.read_text(encoding="utf-8")
    assert not findings.complete
    assert ">preliminary<" in text or ">not identified<" in text
    for words in ("7 finished, 1 diverged, 2 not done", "diverged at step 3", ">failed<", "waiting, held out"):
        assert words in text


@pytest.mark.parametrize(("places", "why"), [((0, 1), "N has one value, so"), ((9,), "hold-out holds out every run")])
def test_too_few_runs_for_a_law_are_shown_without_one(places, why, tmp_path, capsys):
    ledger, _ = make_study(tmp_path, outcome=lambda place: "finished" if place in places else None)
    reason, counted = f"There is no law: {why}", f"{len(places)} finished, {10 - len(places)} not done"
    report = scaling.report("small", runs=ledger.root, progress=False)
    assert capsys.readouterr().err == ""
    assert reason in str(report)
    text = unescape(report.page.read_text(encoding="utf-8"))
    assert all(words in text for words in (">no law yet<", reason, counted))
    assert not (report.page.parent / "fit.json").exists()
    with pytest.raises(ScalingError, match=f"there is no law: {why}"):
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
    _, *lines = (ledger.study_folder("small") / "report" / "points.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [run.run for run in larger.runs]


def test_what_is_not_identified_is_stated_first_and_is_no_figure(study):
    """0.65 in [open, 34,310] was the largest number of a page."""
    ledger, plan, found, *_ = study

    def without(name: str, doubt: str):
        lost = {"not_identified": [doubt], "unidentified": [name]}
        return replace(found, fit=replace(found.fit, document={**found.document, **lost}))

    lost, known = without("E", "E is not separated from A"), record(found, ledger, plan)
    assert answer(lost).standing == "not identified"
    assert answer(lost).sentence.startswith("These runs do not identify the law: E is not separated from A")
    (_, figure, remarks), *_ = summary(lost, known)
    assert (figure, remarks[0]) == ("not identified", "E is not separated from A")
    assert answer(found).standing == "identified"
    assert next(iter(summary(found, known)))[1] == "2.098"
    # A wide exponent is not an answer, and the floor still is.
    said = answer(without("alpha", "alpha lies anywhere"))
    assert said.standing == "identified in part"
    assert said.sentence.startswith("These runs do not identify all of the law: alpha lies anywhere")
    assert "<strong>α" not in said.sentence
    assert "levels off at" in said.sentence


def test_trouble_with_wandb_is_one_line(study, monkeypatch, caplog):
    ledger, found, findings, path, _ = study
    trouble = Mock(side_effect=RuntimeError("no such\nserver"))
    monkeypatch.setattr("wandb.init", trouble)
    with caplog.at_level(logging.WARNING, "scaling.training.wandb_settings"):
        for mode in ("disabled", "offline"):  # disabled it calls nobody
            monkeypatch.setattr("scaling.reports.write.mode", lambda config, mode=mode: mode)
            mirror(findings, path, ledger, found)
    (line,) = caplog.records
    assert "\n" not in line.getMessage()


@pytest.mark.slow
def test_offline_it_leaves_the_law_the_table_the_figures_and_the_page(study, monkeypatch):
    ledger, found, findings, path, _ = study
    known = {"law": "chinchilla", "E/low": findings.document["intervals"]["E"]["low"]}
    assert headline(findings).items() >= known.items()
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr("scaling.reports.write.mode", lambda config: "offline")
    mirror(findings, path, ledger, found)
    written = list((path.parent.parent / "wandb").rglob("*"))
    assert [path for path in written if path.suffix == ".wandb"]
    media = [path.suffix for path in written if "media" in path.parts and path.is_file()]
    assert set(media) == {".json", ".html", ".png"}
    assert media.count(".png") == len(findings.pictures)


def test_each_run_is_paired_with_the_first_row_and_that_is_the_answer_without_a_law():
    def row(name: str, size: int, tokens: str, loss: float | None) -> dict[str, Any]:
        status, named = "missing" if loss is None else "finished", f"row={name} width={size} tokens={tokens}"
        return {"run": named, "name": named, "row": name, "status": status, "N": 100 * size, "loss": loss}

    losses = {("A", "1M"): 4.0, ("A", "2M"): 3.0, ("B", "1M"): 3.8, ("B", "2M"): 2.94, ("C", "1M"): 4.2}
    table = [row(name, size, tokens, loss) for size in (8, 16) for (name, tokens), loss in losses.items()]
    table.append(row("C", 8, "2M", None))
    found: Any = SimpleNamespace(rows=tuple(table), document={}, complete=False, reason="the study asks for none")
    assert advantages(found) == {
        **dict.fromkeys((("B", 800), ("B", 1600)), pytest.approx([-0.05, -0.02])),
        **dict.fromkeys((("C", 800), ("C", 1600)), pytest.approx([0.05])),
    }
    assert answer(found).standing == "preliminary"
    assert "B −3.5% at N = 800 and −3.5% at N = 1,600" in answer(found).sentence
    assert "−3.5% ± 2.1%" in to_html(rows(found))


def test_a_law_a_row_states_whose_lead_grows():
    def exponent(row: str, estimate: float, **ends: float) -> dict[str, Any]:
        own = {"row": row, "name": "compute", "estimate": estimate, "low": estimate - 0.01, "high": estimate + 0.01}
        return {**own, "difference": {"estimate": estimate - 0.2, **ends} if ends else None}

    found = [exponent("A", 0.2), exponent("B", 0.3, low=0.08, high=0.12), exponent("C", 0.1, low=-0.12, high=-0.08)]
    sentence = plain(exponents({"exponents": [*found, exponent("D", 0.21, low=-0.01, high=0.03)]}))
    gains, loses, unknown = sentence.partition("differs under ")[2].split("; ")
    assert gains.startswith("B by +0.10")
    assert "it gains with compute" in gains
    assert "it loses with compute" in loses
    assert "D by " in unknown
    assert "do not show whether it gains or loses" in unknown


def test_the_setup_states_what_agrees_and_what_differs():
    def specs(*words: list[str]) -> list[dict[str, Any]]:
        return [assemble(load("decoder", ["train.tokens=200k", "schedule.warmup=4", *more])).spec for more in words]

    alike = specs(["seed=0"], ["seed=1"])
    answers = setup(alike, [{"passes": 0.0}, {"passes": 3.25}])
    assert set(answers) == set(SETUP) - {"hypothesis", "noise"}
    assert answers["optimizer"] == "AdamW; gradient_clip_val 1.0"
    assert answers["lr"] == "lr 0.003; Standard"
    assert "; block.mixer Attention; " in answers["architecture"]
    assert answers["data"].endswith("repeated up to 3.25 times")
    (other,) = specs(["optimizer.lr=0.004", "optimizer.weight_decay=0.2", "train.tokens=400k"])
    answers = setup([alike[0], other])
    assert "0.003 to 0.004, 2 values" in answers["lr"]
    assert "weight_decay its default or 0.2" in answers["optimizer"]


def test_evaluations_of_another_sample_are_no_part_of_a_curve(tmp_path):
    """Under `whole_at_end` the last evaluation is of more windows, and its loss is off the others' by a constant."""
    ledger, plan = make_study(tmp_path, outcome=lambda _: None)
    for one in plan.runs:
        with ledger.claim(one.run) as attempt:
            attempt.log.write({"kind": "train", "step": 1, "loss": 4.0})
            for step, loss, targets in ((1, 3.9, 100), (2, 3.5, 100), (3, 3.2, 900)):
                attempt.log.write({"kind": "evaluate", "step": step, "loss": loss, "targets": targets})
    curves = read_curves(ledger.root / "studies" / "small")
    read_steps = [(curve.steps[curve.kinds == 1].tolist(), curve.steps[curve.kinds == 0].tolist()) for curve in curves]
    assert read_steps == [([1, 2], [1])] * len(plan.runs)


RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = sorted(path.parent for path in RESULTS.glob("*/fit.json"))
NUMBER = re.compile(r"(\d+\.?\d*)")
each = pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)


def fitted(folder: Path):
    return json.loads((folder / "fit.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@each
def test_a_kept_report_comes_out_the_same_when_it_is_fitted_again(folder, tmp_path):
    again = shutil.copytree(folder, tmp_path / folder.name)
    fit_again(again)
    assert (again / "points.csv").read_bytes() == (folder / "points.csv").read_bytes()
    # Along a flat valley the end of an interval moves by a thousandth from one kind of processor to another.
    before, after = (NUMBER.split((place / "README.md").read_text(encoding="utf-8")) for place in (folder, again))
    assert after[::2] == before[::2]
    assert [*map(float, after[1::2])] == pytest.approx([*map(float, before[1::2])], rel=1e-3, abs=0.01)
    assert fitted(again)["estimates"] == pytest.approx(fitted(folder)["estimates"], rel=1e-6)


def test_a_kept_report_needs_no_ledger_and_comes_out_the_same(study, tmp_path, capsys, monkeypatch):
    found, kept = study.plan, study.kept
    page, paragraph = (kept / "index.html").read_bytes(), (kept / "README.md").read_text(encoding="utf-8")
    assert paragraph.startswith("# small: identified\n")
    assert found.question.question in paragraph
    links = {one["href"] for one in Reader(page.decode()).all("a")} | set(re.findall(r"\]\(([^)]+)\)", paragraph))
    files = {link for link in links if not link.startswith("#")}
    assert "points.csv" in files
    assert all((kept / link.partition("#")[0]).is_file() for link in files)
    copy = shutil.copytree(kept, tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()  # which is not a ledger: those of studies may lie in it
    report = scaling.report("small")
    steps = [line.removeprefix("scaling: ") for line in capsys.readouterr().err.splitlines()]
    assert steps == ["fit chinchilla to 15 runs", "draw 6 figures"]
    assert report.findings.document["setup"] == study.findings.document["setup"]  # a copy has no specs
    assert report.page.read_bytes() == page
    assert (copy / "README.md").read_text(encoding="utf-8") == paragraph
    assert fitted(copy) == fitted(kept) == json.loads((study.page.parent / "fit.json").read_text())


def test_the_yaml_of_a_kept_report_makes_the_same_runs_with_the_overrides_of_its_command(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL.read_text().replace("law: chinchilla\n", ""))
    words = ["data.symbols=32", f"runs={tmp_path / 'runs'}"]
    found = plan(read(str(tmp_path / "small.yaml"), None, words), words)
    found = replace(found, command=("study", "small.yaml", *words))
    enter(ledger := found.ledger(), found)
    for one in found.runs:
        finish(ledger, one.run, 2.0)
    write(ledger, found, kept=tmp_path / "kept")
    (kept,) = (tmp_path / "kept").glob("*/*.yaml")
    again = plan(read(str(kept)), [f"runs={tmp_path / 'other'}"])
    assert [one.run for one in again.runs] == [one.run for one in found.runs]


def test_a_copy_whose_points_or_record_were_altered_is_refused(study, tmp_path, capsys):
    folder = shutil.copytree(study.kept, tmp_path / "small")
    points, record, page = folder / "points.csv", folder / "record.json", (folder / "index.html").read_bytes()
    text, whole = points.read_text(), record.read_text()
    points.write_text(text.replace(",2.", ",1.", 1))  # a loss
    assert f"{points}: these are not the points of the kept report" in refused(capsys, "report", str(folder))
    points.write_text(text)
    for altered in ("{", re.sub(r'"runs": \{\s*"\w+"', '"runs": {"0"', whole)):
        record.write_text(altered)
        assert f"{record}: the record is damaged" in refused(capsys, "report", str(folder))
    assert (folder / "index.html").read_bytes() == page


@pytest.fixture
def made(tmp_path):
    return make_study(tmp_path, NO_LAW, lambda place: None if place == 9 else "finished")


def test_a_folder_to_keep_a_report_in_that_is_a_file_is_refused_before_the_report_is_made(made, tmp_path, capsys):
    file = tmp_path / "kept"
    file.write_text("mine")
    for keep in (file, file / "below"):
        line = refused(capsys, "report", "small", f"runs={made[0].root}", "--keep", keep)
        assert f"--keep={str(file)!r}: is a file" in line
    assert file.read_text() == "mine"
    assert not (made[0].study_folder("small") / "report").exists()


def test_a_plan_that_was_altered_and_what_was_copied_from_another_run_or_study_are_refused(made, capsys):
    ledger, planned = made
    report, file, folder = ["report", "small", f"runs={ledger.root}"], ledger.plan_file("small"), ledger.study_folder
    document, whole = documents.read(file) or {}, file.read_text()
    document["runs"][0]["point"] = None
    for text in (seal(document).decode(), whole.replace('"N":', '"M":', 1)):
        file.write_text(text)
        assert "the plan is damaged" in refused(capsys, *report)
    file.write_text(whole)
    one, other = (ledger.folder(run.run) for run in planned.runs[:2])
    result = (one / "result.json").read_bytes()
    shutil.copy(other / "result.json", one)
    assert main(report) == 0
    points = (folder("small") / "report" / "points.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in points[1:3]] == ["missing", "finished"]
    (one / "result.json").write_bytes(result)
    shutil.copytree(folder("small"), folder("other"))
    line = refused(capsys, "report", "other", f"runs={ledger.root}")
    assert "other/plan.json: study='other': the plan is of the study small" in line
    shutil.copy(other / "spec.json", one)
    assert "the run has no spec that can be read" in refused(capsys, *report)


def test_a_decision_that_is_missing_and_a_prediction_that_was_altered_are_reported(made, capsys):
    ledger, planned = made
    path, _ = register(ledger, planned.runs[9].run, DOCUMENT)
    path.write_bytes(seal({**(documents.read(path) or {}), "predicted": 2.4}))
    out = command_line.printed(capsys, "report", "small", f"runs={ledger.root}")
    expected = f"0 predictions, 0 scored, 0 waiting; altered since, and not counted: predictions/{path.name}"
    assert f"on record: {expected}\n" in out
    assert expected in (ledger.study_folder("small") / "report" / "index.html").read_text()
    for number in (1, 2, 3):
        decide(ledger, "small", number, {"goal": "E ± 0.1", "budget": 1.0, "run": "0" * 16})
    (ledger.study_folder("small") / "decisions" / "0002.json").unlink()
    line = refused(capsys, "report", "small", f"runs={ledger.root}")
    assert "0002.json: the decision is missing, and later ones are here" in line
