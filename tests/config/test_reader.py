import os

import pytest
import yaml

from scaling.config import reader
from scaling.config.reader import DEEPEST, MOST_BYTES, parse, read
from scaling.errors import ScalingError

LOADERS = {"C": getattr(yaml, "CSafeLoader", yaml.SafeLoader), "Python": yaml.SafeLoader}


@pytest.fixture(params=LOADERS, autouse=True)
def loader(request, monkeypatch):
    monkeypatch.setattr(reader, "_LOADER", LOADERS[request.param])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("---\n", {}),
        ("a: 1\nb: [x, 2.5, null]\n", {"a": 1, "b": ["x", 2.5, None]}),
        ("lr: 1e-4\nanswer: no\nquoted: '1'\nempty:\n", {"lr": 1e-4, "answer": "no", "quoted": "1", "empty": None}),
        ("no: 1\n1: 2\n1.5B: {a: b}\n", {"no": 1, "1": 2, "1.5B": {"a": "b"}}),
        ("a: &x {b: 1}\nc: *x\n", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("'<<': 1\n", {"<<": 1}),
        ("a: 10:30\n", {"a": "10:30"}),
    ],
)
def test_reads(text, value, write):
    assert read(write("a.yaml", text)).plain() == value


BOMB = "".join(f"a{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in range(10)) if n else 'x'}]\n" for n in range(12))
TOWER = "".join(f"a{n}: &a{n} [[[[[[[[[[{f'*a{n - 1}' if n else 'x'}]]]]]]]]]]\n" for n in range(200))

REFUSALS = {
    "a: 1\nb: 2\na: 3\n": "a.yaml:3: a: the key is there twice, first on line 1; keep one of them",
    "a:\n  b: {c: 1, c: 2}\n": "a.yaml:2: c: the key is there twice, first on line 2; keep one of them",
    "a:\n\tb: 1\n": "a.yaml:2: a tab in the indentation; indent with spaces",
    "a:\n  \tb: 1\n": "a.yaml:2: a tab in the indentation; indent with spaces",
    "a: !!python/object/apply:os.system [x]\n": (
        "a.yaml:1: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not read; write the plain value"
    ),
    "a: !!str 1\n": "a.yaml:1: the tag 'tag:yaml.org,2002:str' is not read; write the plain value",
    "!!str a: 1\n": "a.yaml:1: the tag 'tag:yaml.org,2002:str' is not read; write the plain key",
    "a: &x {b: 1}\nc:\n  <<: *x\n": "a.yaml:3: merge keys are not read; name the other file as `base`",
    "a: *x\n": "a.yaml:1: the alias *x has no finished anchor before it; write the value out",
    "a: &x [*x]\n": "a.yaml:1: the alias *x has no finished anchor before it; write the value out",
    "a: 1\n---\nb: 2\n": "a.yaml:2: a second document begins; keep one document a file",
    "? [a]\n: 1\n": "a.yaml:1: a key must be a single word; quote it if it is meant as text",
    "[" * 40 + "]" * 40: f"a.yaml:1: nested more than {DEEPEST} deep; flatten it",
    BOMB: "a.yaml:6: more than 50,000 values, aliases written out; write less",
    TOWER: f"a.yaml:4: nested more than {DEEPEST} deep; flatten it",
    b"a: 1\nb: \xff\n": "a.yaml:2: not UTF-8; save it as UTF-8",
    "a: 1\n".encode("utf-16"): "a.yaml:1: not UTF-8; save it as UTF-8",
    b"a: " + b"x" * MOST_BYTES: "a.yaml: 1,048,579 bytes are too many for a config; 1,048,576 are the most",
}


@pytest.mark.parametrize(("text", "told"), REFUSALS.items(), ids=[told[7:60] for told in REFUSALS.values()])
def test_refuses_in_one_line(text, told, write):
    with pytest.raises(ScalingError) as error:
        read(write("a.yaml", text))
    assert str(error.value) == told
    assert error.value.code == 2


@pytest.mark.parametrize(
    "text", ["a: [1\n", "a: 'x\n", "a: b: c\n", "- a\nb\n", "a: @x\n", "%x\n", "a: \x07\n", "a: }"]
)
def test_names_the_file_of_what_is_not_yaml(text, write):
    with pytest.raises(ScalingError, match=r"^a\.yaml(:\d+)?: not YAML: .") as error:
        read(write("a.yaml", text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["absent.yaml", "folder", "pipe", "a\0b.yaml", "x" * 300 + ".yaml"])
def test_refuses_what_is_no_file(where, write, tmp_path):
    write("a.yaml", "a: 1")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScalingError) as error:
        read(where)
    assert "\n" not in str(error.value)
    assert error.value.code == 2


def test_an_origin_is_the_line_of_the_key():
    root = parse("a:\n  b:\n    - 1\n    - {c: 2}\n  d: |\n    x\n", "a.yaml")
    lines = {key: node.origin.line for key, node in root.walk()}
    assert lines == {"": 1, "a": 1, "a.b": 2, "a.b.0": 3, "a.b.1": 4, "a.b.1.c": 4, "a.d": 5}


def test_no_file_may_change_the_message_into_two_lines(write):
    with pytest.raises(ScalingError) as error:
        read(write("a.yaml", '"a\\nb": 1\n"a\\nb": 2\n'))
    assert "\n" not in str(error.value)
