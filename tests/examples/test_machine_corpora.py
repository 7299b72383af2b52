"""The example of corpora that every machine has: message catalogues, functions and their docstrings."""

from __future__ import annotations

import struct
import sysconfig
from pathlib import Path

import pytest

from scaling.config.schema import build, extend

MACHINE = Path(__file__).parents[2] / "examples" / "machine_corpora" / "machine.py"


@pytest.fixture(autouse=True)
def joined() -> None:
    extend(MACHINE)


def catalogue(file: Path, entries: dict[bytes, bytes], order: str = "<") -> None:
    """A `.mo` file, laid out as GNU gettext's manual states (section 10.3)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = {b"": b"Content-Type: text/plain; charset=iso-8859-1\n", **entries}
    head, texts, table = 28, b"", b""
    for side in (0, 1):
        for entry in sorted(entries.items()):
            table += struct.pack(f"{order}2I", len(entry[side]), head + 16 * len(entries) + len(texts))
            texts += entry[side] + b"\0"
    numbers = (0x950412DE, 0, len(entries), head, head + 8 * len(entries), 0, 0)
    file.write_bytes(struct.pack(f"{order}7I", *numbers) + table + texts)


def gettext(folder: Path, **line):
    corpus = build("corpus", {"kind": "Gettext", "folder": str(folder), **line})
    return [(d.source, d.text, d.split) for d in corpus.snapshot(folder).documents()]


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_catalogue_gives_messages_and_translations(tmp_path, order):
    entries = {
        b"Open file": "Datei öffnen".encode("iso-8859-1"),
        b"menu\x04Close  it\n": b"Schliessen",
        b"%d file\0%d files": b"%d Datei\0%d Dateien",
        b"untranslated": b"",
    }
    catalogue(tmp_path / "de" / "LC_MESSAGES" / "app.mo", entries, order)
    pairs = {("Open file", "Datei öffnen"), ("Close it", "Schliessen"), ("%d file", "%d Datei")}
    assert {(source, text) for source, text, _ in gettext(tmp_path, held_out=0.0)} == pairs


FUNCTION = '''
def {name}(number):
    """Return {name} of a number.

    More."""
    total = number + number * number - number ** number
    return total
'''


def test_what_is_held_out_is_not_trained_on(tmp_path, monkeypatch):
    """Of forty catalogues and of forty files with something of their own each and something that all have."""
    library = tmp_path / "lib"
    library.mkdir()
    for number in range(40):
        entries = {b"shared": b"geteilt", f"own {number}".encode(): f"eigen {number}".encode()}
        catalogue(tmp_path / "de" / "LC_MESSAGES" / f"app{number}.mo", entries)
        text = FUNCTION.format(name=f"own{number}") + FUNCTION.format(name="shared")
        (library / f"file{number}.py").write_text(text)
    monkeypatch.setattr(sysconfig, "get_paths", lambda *_: {"stdlib": str(library)})
    corpus = build("corpus", {"kind": "Docstrings", "reach": "standard", "held_out": 0.3})
    functions = [(d.source, d.text, d.split) for d in corpus.snapshot(tmp_path).documents()]
    for rows in (gettext(tmp_path, held_out=0.3), functions):
        train, validation = ({source for source, _, own in rows if own == split} for split in ("train", "validation"))
        assert not train & validation
        assert len(train | validation) == 41
        assert 4 <= len(validation) <= 25
    # A function is answered by the first paragraph of its docstring.
    assert {text for source, text, _ in functions if "shared" in source} == {"Return shared of a number."}
    assert all("Return" not in source for source, _, _ in functions)
