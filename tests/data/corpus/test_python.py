"""The Python sources: taken once, and the same ever after."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A standard library of three sources beside a folder of packages."""
    library, packages = tmp_path / "lib", tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (library / "one.py").write_text("one = 1\n")
    (library / "two.py").write_bytes(b"# -*- coding: latin-1 -*-\ntwo = '\xe9'\n")
    (library / "bad.py").write_bytes(b"three = '\xe9'\n")
    (packages / "four.py").write_text("four = 4\n")
    paths = {"stdlib": str(library), "purelib": str(packages), "platlib": str(packages)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    return library


def texts(root: Path, **line: object) -> list[str]:
    corpus = build("corpus", {"kind": "Python", **line})
    return [document.text for document in corpus.snapshot(root).documents()]


@pytest.mark.usefixtures("sources")
def test_what_python_can_read_is_taken(tmp_path: Path) -> None:
    standard = {"one = 1\n", "# -*- coding: latin-1 -*-\ntwo = 'é'\n"}
    assert set(texts(tmp_path, reach="standard")) == standard
    assert set(texts(tmp_path)) == {*standard, "four = 4\n"}


def test_packages_may_change_under_a_snapshot(sources: Path, tmp_path: Path) -> None:
    before = texts(tmp_path)
    (sources / "one.py").write_text("one = 11\n")
    assert texts(tmp_path) == before
    assert "one = 11\n" in texts(tmp_path / "elsewhere")


@pytest.mark.usefixtures("sources")
def test_an_altered_snapshot_is_found(tmp_path: Path) -> None:
    texts(tmp_path)
    (file,) = tmp_path.glob("snapshots/*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ScalingError, match="the snapshot differs from its record"):
        texts(tmp_path)
