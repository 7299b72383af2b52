"""`scaling data`: what it lists, prepares and shows, and that every mistake is one line with exit code 2."""

import os
import sysconfig
from pathlib import Path

import pytest

import scaling
from scaling.config.files import shipped
from tests.command_line import printed, refused

TEXT = "\n\n".join(f"paragraph {n}: loss falls as {n * 7} grows, and {n * 13} more words" for n in range(300))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that name a small corpus."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "text.txt").write_text(TEXT)
    tokenizer = "data.tokenizer={kind: ByteBPE, vocabulary: 300}"
    return ["files", f"data.corpus.files={tmp_path}/text.txt", tokenizer, "data.validation=0.1", "size.length=32"]


def test_prepare_then_show(capsys: pytest.CaptureFixture[str], words: list[str], tmp_path: Path) -> None:
    prepared = printed(capsys, "data", "prepare", *words, "--json")
    shown = scaling.data_show(*words, windows=2)
    assert {"schema": 1, **shown.to_json()} == printed(capsys, "data", "show", *words, "--json", "--windows", "2")
    assert prepared["train"] == shown.train
    assert prepared["folder"].startswith(str(tmp_path / "data"))
    assert shown.train["bytes"] + shown.validation["bytes"] == len(TEXT) - 2 * 299
    assert shown.train["documents"] + shown.validation["documents"] == 300
    assert shown.train["bytes_per_token"] == pytest.approx(shown.train["bytes"] / shown.train["tokens"])
    assert (shown.train["windows"], shown.train["window_length"]) == (shown.train["tokens"] // 32, 32)
    assert shown.train["vocabulary"] == 300
    for window in shown.windows:
        assert all(run["text"] in TEXT for run in window["reads"] if run["kind"] == "text")
    human = printed(capsys, "data", "show", *words, "--windows", "1", "--verify")
    assert f"in {prepared['folder']}" in human
    assert "\x1b" not in human, "colours are for a terminal"
    own = {"base": "decoder", "data": "files", **dict(word.split("=", 1) for word in words[1:])}
    (tmp_path / "own.yaml").write_text("\n".join(f"{key}: {value}" for key, value in own.items()))
    assert printed(capsys, "data", "prepare", "--model", str(tmp_path / "own.yaml"), "--json") == prepared
    for more, line in (("objective=SpanCorruption", "source"), ("objective=Masked", "reads")):
        windows = printed(capsys, "data", "show", *words, more, "--json")["windows"]
        assert len(windows) == 3
        assert {"text", "special"} <= {run["kind"] for window in windows for run in window[line]}
    known = scaling.data_show("synthetic", windows=0)
    assert known.train["entropy_nats_per_token"] == pytest.approx(2.189317628, abs=1e-6)
    assert known.folder is None
    assert "shorter than one window" in refused(capsys, "data", "show", *words, "size.length=100000")
    shard = Path(prepared["folder"]) / "train" / "00000.text.tokens"
    shard.write_bytes(shard.read_bytes()[::-1])
    assert "it was altered: its hash does not fit" in refused(capsys, "data", "show", *words)


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    mistakes = {
        "shew python": "there is no command 'data shew'; did you mean 'data show'?",
        "show python": "configs/data/python.yaml:2: data: the data have not been prepared in ",
        "prepare files": "configs/data/files.yaml:6: data.corpus.files='text/*.txt': there is no such file",
        "prepare c4": "data.corpus.path='allenai/c4': no network, and the set is on the hub",
        "show synthetic --windows 5000000": "windows=5000000: expected a whole number from 0 and up to 4.194e6",
        "show recall objective.form=text": "command line: objective.form='text': an encoder cannot write its answers",
        "show synthetic objective=Sequence": "it learns from pairs, and the data are windows",
    }
    for arguments, message in mistakes.items():
        assert message in refused(capsys, "data", *arguments.split())
    assert "add --executor slurm or ray" in refused(capsys, "data", "prepare", *words, "--set", "mem_gb=1")


def test_shipped_data_are_listed_with_what_is_prepared_of_them(capsys, words, tmp_path):
    folder = shipped() / "data"
    names = {file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml")}
    listed = printed(capsys, "data", "list", "--json")
    assert {entry["name"] for entry in listed} == names
    assert all(entry["about"] and entry["prepared"] is None for entry in listed)
    printed(capsys, "data", "prepare", *words)
    other = ["data.corpus.text={text}!", "data.tokenizer=Byte", "data.validation=0.1"]
    printed(capsys, "data", "prepare", *words[:2], *other)
    listed = scaling.data_list().document
    made = {(entry["name"], *entry["overrides"]): entry["prepared"] for entry in listed if entry["prepared"]}
    files = f"data.corpus.files={tmp_path}/text.txt"
    assert set(made) == {
        ("files", files, "data.tokenizer.vocabulary=300", "data.validation=0.1"),
        ("files", files, "data.corpus.text={text}!", "data.tokenizer.kind=Byte", "data.validation=0.1"),
    }
    for name, *overrides in made:
        shown = scaling.data_show(name, *overrides, windows=0, size__length=8)
        assert shown.folder.endswith(made[(name, *overrides)]), "the words that are listed name what was prepared"
        assert f"{made[(name, *overrides)]}  data.corpus.files=" in printed(capsys, "data", "list")


def test_the_name_of_a_file_that_is_not_utf8_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("one\n\ntwo")
    message = refused(capsys, "data", "prepare", tmp_path, f"runs={tmp_path}")
    assert "caf�.txt: its name is not UTF-8; rename" in message
    library = tmp_path / os.fsdecode(b"caf\xe9.py")
    library.touch()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: dict.fromkeys(("stdlib", "purelib", "platlib"), tmp_path))
    assert "a name is not UTF-8: 'lib/caf\\udce9.py'" in refused(
        capsys, "data", "prepare", "python", f"runs={tmp_path}"
    )
