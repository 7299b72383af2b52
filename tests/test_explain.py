"""`scaling explain`: every slot, every kind, every key, and a piece of one's own."""

import json

import pytest

from scaling import build
from scaling.cli import main
from scaling.config import FIXED


def explained(capsys, *words):
    assert main(["explain", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_slot_is_listed(capsys):
    assert set(explained(capsys)) == set(build.SLOTS)


@pytest.mark.parametrize("slot", build.SLOTS)
def test_every_kind_is_told_with_its_formula_and_keys(slot, capsys):
    kinds = explained(capsys, slot)["kinds"]
    assert {kind["kind"] for kind in kinds} >= set(build.kinds(slot))
    for kind in kinds:
        assert kind["formula"], f"{kind['kind']} has no docstring"
        assert set(kind["keys"]) == set(build.keys(build.kinds(slot)[kind["kind"]]))
    assert main(["explain", slot]) == 0
    told = capsys.readouterr().out
    assert all(kind["kind"] in told for kind in kinds)


def test_a_citation_is_told_apart_from_the_formula(capsys):
    gated = next(kind for kind in explained(capsys, "block.channel")["kinds"] if kind["kind"] == "Gated")
    assert gated["formula"].startswith("FFN(x) =")
    assert gated["citation"] == "Shazeer 2020"
    assert gated["keys"]["activation"] == {"type": "a piece", "needed": True, "default": None}
    assert gated["keys"]["bias"] == {"type": "true or false", "needed": False, "default": False}


@pytest.mark.parametrize("section", FIXED)
def test_a_section_of_fixed_keys_tells_what_each_means(section, capsys):
    keys = explained(capsys, section)["keys"]
    assert keys
    assert all(row["meaning"] for row in keys.values())
    assert main(["explain", section]) == 0
    told = capsys.readouterr().out
    assert all(key in told for key in keys)


MINE = '''
class Halved:
    """FFN(x) = x / 2. (A paper, 2026)"""

    slot = "channel"

    def __init__(self, shape, *, times: int = 1): ...
'''


def test_a_piece_of_ones_own_is_explained_beside_ours(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(MINE)
    kinds = {
        kind["kind"]: kind for kind in explained(capsys, "channel", "--extend", str(tmp_path / "mine.py"))["kinds"]
    }
    assert kinds["Halved"]["citation"] == "A paper, 2026"
    assert kinds["Halved"]["keys"]["times"]["default"] == 1
    assert "Gated" in kinds


def test_an_unknown_slot_is_one_line(capsys):
    assert main(["explain", "block.chanel"]) == 2
    assert capsys.readouterr().err == "scaling: there is no slot 'chanel'; did you mean 'channel'?\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Rotary", ["position", "10000.0", "Su et al. 2021"]),
        ("rotary", ["Rotary"]),
        ("block.channel.Gated", ["Shazeer 2020", "activation"]),
        ("law", ["chinchilla", "power_law_c", "Hoffmann et al. 2022"]),
        ("chinchilla", ["E + A N^-α + B D^-β", "alpha", "nats"]),
        ("study", ["question", "grid", "held_out", "needed"]),
        ("size", ["width", "key_heads", "100k", "gpt2"]),
        ("sweep", ["early_terminate", "program: scaling"]),
        ("table", ["base", "rows", "table.seeds", "baseline", "size"]),
        ("data", ["Synthetic", "Text"]),
        ("objective", ["Causal"]),
        ("grid", ["IsoFLOP"]),
        ("held_out", ["study", "test the fit"]),
        ("define", ["checklist"]),
        ("early_terminate", ["sweep"]),
        ("seeds", ["table"]),
        ("quickstart", ["configs/study/quickstart.yaml", "entropy"]),
        ("study/quickstart", ["configs/study/quickstart.yaml"]),
        ("narang2021", ["configs/table/narang2021.yaml"]),
        ("data/python", ["configs/data/python.yaml"]),
        ("plan", ["scaling plan --help"]),
        ("fit", ["scaling fit --help"]),
    ],
)
def test_a_name_that_a_config_writes_is_explained(name, words, capsys):
    assert explained(capsys, name)
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("slot", build.SLOTS)
def test_every_kind_is_explained_by_its_own_name(slot, capsys):
    for kind in build.kinds(slot):
        assert any(slot in one["slots"] for one in explained(capsys, f"{slot}.{kind}")["kinds"])


def test_every_law_is_explained_by_its_own_name(capsys):
    from scaling.law import LAWS

    for law in LAWS:
        if law.name not in ("learning_rate", "shape"):
            assert explained(capsys, law.name)["law"] == law.name


@pytest.mark.parametrize("group", ["study", "table", "data", "model", "size"])
def test_every_shipped_name_is_explained(group, capsys):
    from scaling.config import names

    for name in names(group):
        assert explained(capsys, name)


def test_every_command_is_explained(capsys):
    from scaling.cli import VERBS

    for verb in VERBS:
        assert explained(capsys, verb)


def test_a_misspelled_kind_is_answered_with_the_nearest(capsys):
    assert main(["explain", "Rotray"]) == 2
    assert "'Rotary'" in capsys.readouterr().err
