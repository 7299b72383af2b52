"""`scaling data`: what it lists, prepares and shows, and that every mistake is one line with exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config import shipped
from scaling.errors import BAD_INPUT

LINE = "paragraph {}: loss falls as {} grows, and {} more words"
TEXT = "\n\n".join(LINE.format(number, number * 7, number * 13) for number in range(300))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What names a small corpus on the command line."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "text.txt").write_text(TEXT)
    tokenizer = "data.tokenizer={kind: ByteBPE, vocabulary: 300}"
    return ["files", f"data.corpus.files={tmp_path}/text.txt", tokenizer, "data.validation=0.1", "size.length=32"]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["data", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["data", *arguments]) == BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("scaling: ")
    assert error.count("\n") == 1
    return error


def test_every_shipped_name_is_listed(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    listed = json.loads(told(capsys, "list", "--json"))
    files = (shipped() / "data").rglob("*.yaml")
    assert {entry["name"] for entry in listed} == {
        file.relative_to(shipped() / "data").with_suffix("").as_posix() for file in files
    }
    assert all(entry["about"] and entry["prepared"] is None for entry in listed)
    assert "wikitext103" in told(capsys, "list")


def test_prepare_then_show(capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path) -> None:
    prepared = json.loads(told(capsys, "prepare", *words, "--json"))
    shown = json.loads(told(capsys, "show", *words, "--json", "--windows", "2"))
    assert prepared["train"] == shown["train"]
    assert prepared["folder"].startswith(str(tmp_path / "data"))
    assert shown["train"]["bytes"] + shown["validation"]["bytes"] == len(TEXT) - 2 * 299
    assert shown["train"]["documents"] + shown["validation"]["documents"] == 300
    assert shown["train"]["bytes a token"] == pytest.approx(shown["train"]["bytes"] / shown["train"]["tokens"])
    for key, before in (("bytes_per_token", "bytes a token"), ("windows", "windows of 32")):
        assert shown["train"][key] == shown["train"][before], "the key of before is still there"
    assert shown["train"]["window_length"] == 32
    assert shown["train"]["windows of 32"] == shown["train"]["tokens"] // 32
    assert shown["train"]["vocabulary"] == 300
    for window in shown["windows"]:
        assert all(run["text"] in TEXT for run in window["reads"] if run["kind"] == "text")
    human = told(capsys, "show", *words, "--windows", "1", "--verify")
    for part in ("documents", "bytes per token", "reads", "predicts"):
        assert part in human


def test_the_data_of_a_config_are_prepared_by_its_name(
    capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path
) -> None:
    named = json.loads(told(capsys, "prepare", *words, "--json"))
    own = {"base": "decoder", "data": "files", **dict(word.split("=", 1) for word in words[1:])}
    lines = [f"{key}: {value}" for key, value in own.items()]
    (tmp_path / "own.yaml").write_text("\n".join(lines))
    assert json.loads(told(capsys, "prepare", "--model", str(tmp_path / "own.yaml"), "--json")) == named


@pytest.mark.parametrize(
    ("objective", "line", "kinds"),
    [
        (["objective=Masked"], "reads", {"text", "special"}),
        (["objective=SpanCorruption"], "source", {"text", "special"}),
        (["objective=Prefix", "--model", "decoder"], "reads", {"prefix", "text"}),
        (["objective=Causal"], "predicts", {"target"}),
    ],
)
def test_what_the_objective_makes_of_it(
    capsys: pytest.CaptureFixture[str], words: list[str], objective: list[str], line: str, kinds: set[str]
) -> None:
    told(capsys, "prepare", *words)
    shown = json.loads(told(capsys, "show", *words, *objective, "--json", "--windows", "3"))
    assert len(shown["windows"]) == 3
    assert kinds <= {run["kind"] for window in shown["windows"] for run in window[line]}


def test_the_entropy_is_shown_where_it_is_known(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    shown = json.loads(told(capsys, "show", "synthetic", "--json", "--windows", "0"))
    assert shown["train"]["entropy, nats a token"] == pytest.approx(2.189317628, abs=1e-6)
    assert shown["folder"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shew", "python"], "there is nothing like 'shew' to do; did you mean 'show'?"),
        (["show"], "no data are named"),
        (["show", "pyhton"], "there is no data 'pyhton'; did you mean 'python'?"),
        (["show", "python", "c4"], "one at a time"),
        (["show", "python"], "configs/data/python.yaml:2: data: the data have not been prepared in "),
        (["prepare", "synthetic"], "Synthetic needs no preparing"),
        (["prepare", "files"], "configs/data/files.yaml:6: data.corpus.files='text/*.txt': there is no such file"),
        (["prepare", "files", "data.shard=0"], "data.shard=0: expected a positive whole number"),
        (["prepare", "files", "data.validation=1"], "data.validation=1: expected a number from 0 and below 1"),
        (
            ["prepare", "files", "data.corpus.flies=x"],
            "data.corpus.flies='x': Files has no such key; did you mean 'files'?",
        ),
        (["prepare", "files", "data.tokenizer={kind: ByteBPX}"], "did you mean 'ByteBPE'?"),
        (
            ["prepare", "python", "data.tokenizer={kind: File, path: none.json}"],
            "data.tokenizer.path='none.json': there is no such file",
        ),
        (["prepare", "c4"], "no network, and allenai/c4 is on the hub"),
        (["show", "synthetic", "--windows", "-1"], "expected a number from 0"),
        (["show", "synthetic", "objective=Sequence"], "it learns from pairs, and the data are windows"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], arguments: list[str], message: str) -> None:
    assert message in refused(capsys, *arguments)


def test_a_corpus_shorter_than_a_window(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    told(capsys, "prepare", *words)
    error = refused(capsys, "show", *words, "size.length=100000")
    assert "shorter than one window" in error


def test_an_altered_shard(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    folder = Path(json.loads(told(capsys, "prepare", *words, "--json"))["folder"])
    shard = folder / "train" / "00000.text.tokens"
    shard.write_bytes(shard.read_bytes()[::-1])
    assert "the shard was altered: its hash does not fit" in refused(capsys, "show", *words)


def test_what_was_prepared_with_overrides_is_listed(
    capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path
) -> None:
    standard = ["data.corpus.limit=50000", "data.corpus.reach=standard", "data.tokenizer.vocabulary=300"]
    standard.append("data.validation=0.3")
    first = json.loads(told(capsys, "prepare", *words, "--json"))
    told(capsys, "prepare", "python", *standard)
    told(capsys, "prepare", *words[:2], "data.corpus.text={text}!", "data.tokenizer=Byte", "data.validation=0.1")
    listed = json.loads(told(capsys, "list", "--json"))
    made = {(entry["name"], *entry["overrides"]): entry["prepared"] for entry in listed if entry["prepared"]}
    files = f"data.corpus.files={tmp_path}/text.txt"
    assert set(made) == {
        ("files", files, "data.tokenizer.vocabulary=300", "data.validation=0.1"),
        ("files", files, "data.corpus.text={text}!", "data.tokenizer={kind: Byte}", "data.validation=0.1"),
        ("python", *standard),
    }
    assert first["folder"].endswith(made[("files", files, "data.tokenizer.vocabulary=300", "data.validation=0.1")])
    for name, *overrides in made:
        shown = json.loads(told(capsys, "show", name, *overrides, "--json", "--windows", "0", "size.length=8"))
        assert shown["folder"].endswith(made[(name, *overrides)]), "the words that are listed name what was prepared"
    human = told(capsys, "list")
    assert (
        "  data.corpus.limit=50000 data.corpus.reach=standard data.tokenizer.vocabulary=300 data.validation=0.3  ["
        in human
    )
    assert next(line for line in human.splitlines() if line.startswith("files")).endswith("*.jsonl.zst'")
