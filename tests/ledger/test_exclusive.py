"""One maker for each file, on file systems with hard links, without them, and with replies that get lost."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scaling.errors import DISK, ScalingError
from scaling.ledger.document import Means, probe, publish, replace

MEANS: list[Means] = ["link", "create"]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("means", MEANS)
def test_one_of_many_makes_it(tmp_path: Path, means: Means) -> None:
    for number in range(20):
        path = tmp_path / f"claim{number}"
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda who, path=path: publish(path, b"%d" % who, means), range(8)))
        assert made.count(True) == 1
        assert path.read_bytes() == b"%d" % made.index(True)
    assert len(_names(tmp_path)) == 20, "nothing temporary is left"


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "exists"), OSError(errno.EIO, "lost")])
def test_a_link_whose_reply_was_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Over NFS a repeated request finds its own link and reports that it exists."""
    link = os.link

    def link_and_lose_the_reply(source: Path, target: Path) -> None:
        link(source, target)
        raise error

    monkeypatch.setattr(os, "link", link_and_lose_the_reply)
    assert publish(tmp_path / "claim", b"mine", "link")


def test_a_link_that_claims_to_have_worked_and_did_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", lambda *_: None)
    assert not publish(tmp_path / "claim", b"mine", "link")


def test_a_failure_that_is_no_rival_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(ScalingError) as told:
        publish(tmp_path / "claim", b"mine", "link")
    assert told.value.code == DISK
    assert _names(tmp_path) == []


def test_the_probe_finds_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe(tmp_path) == "link"

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert probe(tmp_path) == "create"
    monkeypatch.setattr(os, "link", lambda source, target: Path(target).write_bytes(Path(source).read_bytes()))
    assert probe(tmp_path) == "create", "a copy in place of a link is no link"
    assert _names(tmp_path) == []


def test_replace_leaves_one_whole_file(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        replace(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert _names(tmp_path) == ["file"]
