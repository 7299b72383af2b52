"""The published sets: each shipped config reads a folder laid out as its set is on the hub; failures are one line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import datasets
import huggingface_hub
import huggingface_hub.errors
import pytest
import zstandard

from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.config.compose import load, shipped
from scaling.config.schema import build
from scaling.data.documents import Document

HUB = sorted(
    file.relative_to(shipped() / "data").with_suffix("").as_posix()
    for file in (shipped() / "data").rglob("*.yaml")
    if "kind: Hub" in file.read_text()
)


ARTICLES = ("", " = One = \n", " text \n", " = = Part = = \n", " more \n", " = Two = \n", " end \n")

Rows = tuple[list[dict[str, Any]], dict[str, Any], list[tuple[str, str | None]]]
# Some rows of each set as the hub has it, its features that are not plain, and the documents that come of them.
SETS: dict[str, Rows] = {
    "wikitext103": (
        [{"text": line} for line in ARTICLES],
        {},
        [("", None), (" = One = \n text \n = = Part = = \n more \n", None), (" = Two = \n end \n", None)],
    ),
    "openwebtext": ([{"text": "a page"}], {}, [("a page", None)]),
    "fineweb_edu": ([{"text": "a page", "id": "1", "score": 3.5}], {}, [("a page", None)]),
    "wmt14_en_de": ([{"translation": {"de": "eins", "en": "one"}}], {}, [("eins", "one")]),
    "wmt14_en_fr": ([{"translation": {"fr": "un", "en": "one"}}], {}, [("un", "one")]),
}


def tables(folder: Path, rows: list[dict[str, Any]], *, config: str = "default", splits: tuple[str, ...] = ("train",)):
    """CONFIG/SPLIT-00000-of-00001.parquet, and a README that says so: how nearly all sets lie on the hub."""
    return typed_tables(folder, rows, {}, config, splits)


def typed_tables(
    folder: Path, rows: list[dict[str, Any]], features: dict[str, Any], config: str, splits: tuple[str, ...]
) -> None:
    table = datasets.Dataset.from_list(rows)
    for name, feature in features.items():
        table = table.cast_column(name, feature)
    for split in splits:
        table.to_parquet(folder / config / f"{split}-00000-of-00001.parquet")
    describe(folder, config, {split: f"{config}/{split}-*" for split in splits})


def describe(folder: Path, config: str, files: dict[str, str]) -> None:
    listed = "".join(f"  - split: {split}\n    path: {path}\n" for split, path in files.items())
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{listed}---\n")


def laid_out(folder: Path, name: str, line: dict[str, Any]) -> list[tuple[str, str | None]]:
    """A copy of a set as the hub has it; the documents that each split of it holds."""
    if name == "c4":  # compressed JSON lines
        (folder / "en").mkdir(parents=True)
        row = json.dumps({"text": "a page", "timestamp": "t", "url": "u"}) + "\n"
        for split in ("train", "validation"):
            (folder / "en" / f"c4-{split}.00000-of-00001.json.gz").write_bytes(gzip.compress(row.encode()))
        describe(folder, "en", {split: f"en/c4-{split}.*.json.gz" for split in ("train", "validation")})
        return [("a page", None)]
    if name == "pile":  # nothing is said: the split is read off the folder's name
        (folder / "train").mkdir(parents=True)
        row = zstandard.compress(b'{"text": "a page", "meta": {"pile_set_name": "Pile-CC"}}\n')
        for file in ("train/00.jsonl.zst", "val.jsonl.zst", "test.jsonl.zst"):
            (folder / file).write_bytes(row)
        return [("a page", None)]
    rows, features, documents = SETS[name]
    splits = [line.get("split", "train"), *([line["validation"]] if line.get("validation") else [])]
    typed_tables(folder, rows, features, line.get("config") or "default", tuple(splits))
    return documents


@pytest.mark.parametrize("name", HUB)
def test_each_set_is_read_in_its_layout(name: str, tmp_path: Path) -> None:
    line = load("decoder", [f"data={name}"])["data.corpus"]
    expected = laid_out(tmp_path / "set", name, line)
    corpus = load("decoder", [f"data={name}", f"data.corpus.path={tmp_path / 'set'}"]).build("data").corpus
    held = list(corpus.snapshot(tmp_path).documents())
    splits = ["validation", "train"] if line.get("validation") else [None]
    assert held == [Document(*document, split) for split in splits for document in expected]


def folder_of(path: Path, **line: object) -> Any:
    return build("corpus", {"kind": "Hub", "path": str(path), "revision": "main", **line})


def test_a_copy_that_changed_is_told(tmp_path: Path) -> None:
    tables(tmp_path / "set", [{"text": "a page"}])
    corpus = folder_of(tmp_path / "set")
    stamp = corpus.snapshot(tmp_path).stamp
    assert corpus.changed(stamp) is None
    tables(tmp_path / "set", [{"text": "another"}])
    assert corpus.changed(stamp) is not None


# --- bad input ---


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(ScalingError) as caught:
        read()
    assert caught.value.code == BAD_INPUT
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["wikitext103", "openwebtext"])
def test_no_network_gives_one_line_with_what_works_without(name: str, tmp_path: Path) -> None:
    corpus = load("decoder", [f"data={name}"]).build("data").corpus
    told = refused(lambda: corpus.snapshot(tmp_path))
    assert told.startswith(
        f"path='{corpus.path}': no network, and the set is on the hub; without one, data=synthetic and"
    )


def reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub answer."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: SimpleNamespace(head=lambda *_, **__: None))


def test_a_bad_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def unknown(*_: object, **__: object) -> None:
        response = cast(Any, httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1")))
        raise huggingface_hub.errors.RevisionNotFoundError("404\nInvalid rev id: nowhere", response=response)

    reach(monkeypatch)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unknown)
    corpus = build("corpus", {"kind": "Hub", "path": "allenai/c4", "revision": "nowhere"})
    assert refused(lambda: corpus.snapshot(tmp_path)) == (
        "revision='nowhere': allenai/c4 has no such revision; give a commit, or main"
    )
    assert "needs a revision" in refused(lambda: build("corpus", {"kind": "Hub", "path": "x/y", "revision": " "}))
    assert "Hub needs it" in refused(lambda: build("corpus", {"kind": "Hub", "path": "x/y"}))


def test_a_branch_is_pinned_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789" * 4

    class Info:
        sha = commit

    asked: dict[str, Any] = {}

    def load_dataset(path: str, config: str | None, **options: Any) -> datasets.IterableDataset:
        asked.update(options, path=path, config=config)
        return datasets.Dataset.from_list([{"text": "a page"}]).to_iterable_dataset()

    reach(monkeypatch)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: Info())
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    snapshot = build("corpus", {"kind": "Hub", "path": "x/y", "revision": "main"}).snapshot(tmp_path)
    assert [document.text for document in snapshot.documents()] == ["a page"]
    assert snapshot.stamp == {"path": "x/y", "commit": commit}
    assert asked == {"path": "x/y", "config": None, "split": "train", "revision": commit, "streaming": True}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"config": "two"}, "config='two': the set has no such config"),
        ({"split": "trian"}, "split='trian': the set has no such split; did you mean 'train'?"),
        ({"text": "{txet}"}, "text: the data have no field 'txet'; did you mean 'text'?"),
    ],
)
def test_what_the_set_does_not_have(change: dict[str, str], told: str, tmp_path: Path) -> None:
    tables(tmp_path / "set", [{"text": "a page"}], config="one")
    corpus = folder_of(tmp_path / "set", **{"config": "one", **change})
    assert refused(lambda: list(corpus.snapshot(tmp_path).documents())).startswith(told)


def test_a_row_gives_classes_by_name_parts_of_lists_and_rounded_numbers(tmp_path: Path) -> None:
    rows = [
        {"label": 1, "score": 3.8000001, "answers": {"text": ["me", "I"]}},
        {"label": -1, "score": 1.0, "answers": {"text": ["we"]}},  # the label is kept secret
        {"label": 0, "score": 1.0, "answers": {"text": []}},
    ]
    label = datasets.ClassLabel(names=["no", "yes"])
    typed_tables(tmp_path / "set", rows, {"label": label}, "default", ("train",))
    corpus = folder_of(tmp_path / "set", text="{label} {score:.1f} {answers.text.0}")
    assert [document.text for document in corpus.snapshot(tmp_path).documents()] == ["yes 3.8 me"]


def test_code_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "set.py").write_text("raise SystemExit(77)\n")
    corpus = folder_of(tmp_path / "set")
    assert "is code, which is not run" in refused(lambda: list(corpus.snapshot(tmp_path).documents()))
