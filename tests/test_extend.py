"""`--extend FILE.py`: a class of one's own joins any slot. In use: tests/examples, and tests/studies in workers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config import schema

LAW = (Path(__file__).parents[1] / "examples" / "own_law" / "law.py").read_text()
KIND = 'class Mine{0}:\n    """Mine. (Doe 2026)"""\n\n    slot = "{1}"\n\n\n'


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


def test_a_class_joins_any_slot_and_is_explained(tmp_path, capsys):
    path = written(tmp_path, "".join(KIND.format(number, slot) for number, slot in enumerate(schema.SLOTS)))
    for number, slot in enumerate(schema.SLOTS):
        assert main(["explain", f"Mine{number}", "--extend", path, "--json"]) == 0
        (kind,) = json.loads(capsys.readouterr().out)["kinds"]
        assert slot in kind["slots"]


BAD = {
    'class Sinking:\n    slot = "law"\n': "Sinking is no law",
    LAW.replace("    formula=", "    objective="): "argument: 'formula'",
    LAW.replace("delayed", "chinchilla"): "there is a law chinchilla already",
    'class A:\n    slot = "channle"\n': "A.slot='channle': there is no such slot; did you mean 'channel'",
    'class GeLU:\n    slot = "activation"\n': "activation has a kind GeLU already",
    "class A: ...\n": "no class in it names a slot; set slot = ",
    "class A\n": "mine.py:1: it does not import: SyntaxError",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_cannot_join_is_one_line(text, tmp_path, capsys):
    assert main(["explain", "law-of-mine", "--extend", written(tmp_path, text)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert BAD[text] in err


def test_two_files_do_not_hide_the_classes_of_each_other(tmp_path, capsys):
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text(KIND.format("", "channel"))
    words = ["explain", "Mine", *(word for file in (*files, files[0]) for word in ("--extend", str(file)))]
    assert main([*words[:4], *words[6:]]) == 0
    assert main(words) == 2
    assert f"b.py: channel has a kind Mine already, of {files[0]}; give yours" in capsys.readouterr().err
