"""`scaling explain`: every slot, every kind, every key; and a class of one's own that joins a slot."""

from pathlib import Path

import pytest

import scaling
from scaling.config import schema
from scaling.config.compose import FIXED
from scaling.config.files import names
from scaling.laws import LAWS
from scaling.verbs.command_line import VERBS
from tests.command_line import printed, refused


def test_every_kind_is_explained_with_its_formula_and_keys():
    for slot in schema.SLOTS:
        assert slot in scaling.explain().document
        explanation = scaling.explain(slot)
        assert {kind["kind"] for kind in explanation.kinds} >= set(schema.kinds(slot))
        for kind in explanation.kinds:
            assert kind["formula"], f"{kind['kind']} has no docstring"
            assert set(kind["keys"]) == set(schema.keys(schema.kinds(slot)[kind["kind"]]))
            assert kind["kind"] in str(explanation)
            assert any(slot in one["slots"] for one in scaling.explain(f"{slot}.{kind['kind']}").kinds)
    (gated,) = scaling.explain("block.channel.Gated").kinds
    assert (gated["formula"][:8], gated["citation"]) == ("FFN(x) =", "Shazeer 2020")
    assert gated["keys"]["activation"] == {"type": "a piece", "needed": True, "default": None}
    assert gated["keys"]["bias"] == {"type": "true or false", "needed": False, "default": False}


def test_a_name_that_a_config_writes_is_explained_and_an_unknown_one_is_one_line(capsys):
    explained = {
        "Rotary": ["position", "10000.0", "Su et al. 2021"],
        "law": ["chinchilla", "power_law_c", "Hoffmann et al. 2022"],
        "chinchilla": ["E + A N^-α + B D^-β", "alpha", "nats"],
        "study": ["question", "grid", "held_out", "needed"],
        "size": ["width", "key_heads", "100k", "gpt2"],
        "table": ["base", "rows", "table.seeds", "baseline", "size"],
        "held_out": ["study", "test the fit"],
        "quickstart": ["configs/study/quickstart.yaml", "entropy"],
        "plan": ["scaling plan --help"],
    }
    for name, words in explained.items():
        text = printed(capsys, "explain", name)
        assert [word for word in words if word not in text] == [], name
        assert text == f"{scaling.explain(name)}\n"
    for name, fix in (("block.chanel", "there is no slot 'chanel'; did you mean 'channel'?"), ("Rotray", "'Rotary'?")):
        assert refused(capsys, "explain", name).endswith(fix)
    # A key whose name a kind has too.
    assert printed(capsys, "explain", "train.tokens", "--json")["keys"].keys() == {"train.tokens"}


def test_every_key_law_command_and_shipped_name_is_explained():
    for section in FIXED:
        assert section in str(scaling.explain(section))
        assert all(row["meaning"] for row in scaling.explain(section).keys.values())
    for law in LAWS:
        if law.name not in ("learning_rate", "shape"):
            assert scaling.explain(law.name).law == law.name
    for name in (*VERBS, *(name for group in ("study", "table", "data", "model", "size") for name in names(group))):
        assert scaling.explain(name).document


# Files for `--extend`; in use: tests/examples, and tests/studies in workers.
LAW = (Path(__file__).parents[1] / "examples" / "own_law" / "law.py").read_text()
KIND = 'class Mine{0}:\n    """Mine. (Doe 2026)"""\n\n    slot = "{1}"\n\n\n'


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


def test_a_class_joins_any_slot_and_is_explained_beside_ours_and_safe_to_show(tmp_path, capsys):
    mine = 'class Halved:\n    """FFN(x) = x / 2 for x < <b>1</b>. (A paper, 2026)"""\n\n    slot = "channel"\n'
    mine += "\n    def __init__(self, shape, *, times: int = 1): ...\n\n\n"
    path = written(tmp_path, mine + "".join(KIND.format(number, slot) for number, slot in enumerate(schema.SLOTS)))
    document = printed(capsys, "explain", "channel", "--extend", path, "--json")
    kinds = {kind["kind"]: kind for kind in document["kinds"]}
    assert "Gated" in kinds
    assert (kinds["Halved"]["citation"], kinds["Halved"]["keys"]["times"]["default"]) == ("A paper, 2026", 1)
    shown = scaling.explain("Halved")._repr_html_()
    assert ("<b>" in shown, "&lt;b&gt;1" in shown) == (False, True)
    for number, slot in enumerate(schema.SLOTS):
        (kind,) = printed(capsys, "explain", f"Mine{number}", "--extend", path, "--json")["kinds"]
        assert slot in kind["slots"]


BAD = {
    'class Sinking:\n    slot = "law"\n': "Sinking is not a law",
    LAW.replace("    formula=", "    objective="): "argument: 'formula'",
    LAW.replace("delayed", "chinchilla"): "there is a law chinchilla already",
    'class A:\n    slot = "channle"\n': "A.slot='channle': there is no such slot; did you mean 'channel'",
    'class GeLU:\n    slot = "activation"\n': "activation has a kind GeLU already",
    "class A: ...\n": "no class in it names a slot; set slot = ",
    "class A\n": "mine.py:1: it does not import: SyntaxError",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_cannot_join_is_one_line(text, tmp_path, capsys):
    assert BAD[text] in refused(capsys, "explain", "law-of-mine", "--extend", written(tmp_path, text))


def test_two_files_do_not_hide_the_classes_of_each_other(tmp_path, capsys):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(KIND.format("", "channel"))
    words = ["explain", "Mine", "--extend", tmp_path / "a.py", "--extend"]
    printed(capsys, *words, tmp_path / "a.py")
    what = f"b.py: channel has a kind Mine already, of {tmp_path / 'a.py'}; give yours"
    assert what in refused(capsys, *words, tmp_path / "b.py")
