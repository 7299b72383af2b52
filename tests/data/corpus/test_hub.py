"""The published sets: each shipped config reads a folder laid out as its set is on the hub; failures are one line."""

from __future__ import annotations

import gzip
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

FILES = {file.stem: file.read_text() for file in (shipped() / "data").rglob("*.yaml")}
ARTICLES = ("", " = One = \n", " text \n", " = = Part = = \n", " more \n", " = Two = \n", " end \n")
PAGE: list[tuple[str, str | None]] = [("a page", None)]
# Some rows of each set as the hub has it, and the documents that come of them.
SETS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str | None]]]] = {
    "wikitext103": (
        [{"text": line} for line in ARTICLES],
        [("", None), (" = One = \n text \n = = Part = = \n more \n", None), (" = Two = \n end \n", None)],
    ),
    "openwebtext": ([{"text": "a page"}], PAGE),
    "fineweb_edu": ([{"text": "a page", "id": "1", "score": 3.5}], PAGE),
    "wmt14_en_de": ([{"translation": {"de": "eins", "en": "one"}}], [("eins", "one")]),
    "wmt14_en_fr": ([{"translation": {"fr": "un", "en": "one"}}], [("un", "one")]),
}


def tables(folder: Path, table: datasets.Dataset, config: str = "default", splits: tuple[str, ...] = ("train",)):
    """CONFIG/SPLIT-00000-of-00001.parquet, and a README that says so: how nearly all sets lie on the hub."""
    for split in splits:
        table.to_parquet(folder / config / f"{split}-00000-of-00001.parquet")
    describe(folder, config, {split: f"{config}/{split}-*" for split in splits})


def describe(folder: Path, config: str, files: dict[str, str]) -> None:
    listed = "".join(f"  - split: {split}\n    path: {path}\n" for split, path in files.items())
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{listed}---\n")


def laid_out(folder: Path, name: str, line: dict[str, Any]) -> list[tuple[str, str | None]]:
    """A copy of a set as the hub has it; the documents that each split of it holds."""
    (folder / "en").mkdir(parents=True)
    if name == "c4":  # compressed JSON lines
        row = gzip.compress(b'{"text": "a page", "timestamp": "t", "url": "u"}\n')
        for split in ("train", "validation"):
            (folder / "en" / f"c4-{split}.00000-of-00001.json.gz").write_bytes(row)
        describe(folder, "en", {split: f"en/c4-{split}.*.json.gz" for split in ("train", "validation")})
        return PAGE
    if name == "pile":  # nothing is said: the split is read off the folder's name
        (folder / "train").mkdir()
        row = zstandard.compress(b'{"text": "a page", "meta": {"pile_set_name": "Pile-CC"}}\n')
        for file in ("train/00.jsonl.zst", "val.jsonl.zst", "test.jsonl.zst"):
            (folder / file).write_bytes(row)
        return PAGE
    rows, documents = SETS[name]
    splits = [line.get("split", "train"), *([line["validation"]] if line.get("validation") else [])]
    tables(folder, datasets.Dataset.from_list(rows), line.get("config") or "default", tuple(splits))
    return documents


@pytest.mark.parametrize("name", sorted(name for name, content in FILES.items() if "kind: Hub" in content))
def test_each_set_is_read_in_its_layout(name: str, tmp_path: Path) -> None:
    line = load("decoder", [f"data={name}"])["data.corpus"]
    expected = laid_out(tmp_path / "set", name, line)
    corpus = load("decoder", [f"data={name}", f"data.corpus.path={tmp_path / 'set'}"]).build("data").corpus
    splits = ["validation", "train"] if line.get("validation") else [None]
    snapshot = corpus.snapshot(tmp_path)
    assert list(snapshot.documents()) == [Document(*each, split) for split in splits for each in expected]
    assert corpus.changed(snapshot.stamp) is None
    next(file for file in (tmp_path / "set").rglob("*") if file.is_file()).write_bytes(b"another")
    assert corpus.changed(snapshot.stamp) is not None


def folder_of(path: Path, **line: object) -> Any:
    return build("corpus", {"kind": "Hub", "path": str(path), "revision": "main", **line})


def test_a_row_gives_classes_by_name_parts_of_lists_and_rounded_numbers(tmp_path: Path) -> None:
    rows = [
        {"label": 1, "score": 3.8000001, "answers": {"text": ["me", "I"]}},
        {"label": -1, "score": 1.0, "answers": {"text": ["we"]}},  # the label is kept secret
        {"label": 0, "score": 1.0, "answers": {"text": []}},
    ]
    label = datasets.ClassLabel(names=["no", "yes"])
    tables(tmp_path / "set", datasets.Dataset.from_list(rows).cast_column("label", label))
    corpus = folder_of(tmp_path / "set", text="{label} {score:.1f} {answers.text.0}")
    assert [document.text for document in corpus.snapshot(tmp_path).documents()] == ["yes 3.8 me"]


def test_a_branch_is_pinned_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, commit = dict[str, Any](), "0123456789" * 4

    def load_dataset(path: str, config: str | None, **options: Any) -> datasets.IterableDataset:
        asked.update(options, path=path, config=config)
        return datasets.Dataset.from_list([{"text": "a page"}]).to_iterable_dataset()

    reach(monkeypatch)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha=commit))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    snapshot = folder_of(Path("x/y")).snapshot(tmp_path)
    assert [document.text for document in snapshot.documents()] == ["a page"]
    assert snapshot.stamp == {"path": "x/y", "commit": commit}
    assert asked == {"path": "x/y", "config": None, "split": "train", "revision": commit, "streaming": True}


def reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub answer."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: SimpleNamespace(head=lambda *_, **__: None))


# --- bad input ---


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(ScalingError) as caught:
        read()
    assert caught.value.code == BAD_INPUT
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_network_and_a_bad_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def unknown(*_: object, **__: object) -> None:
        response = cast(Any, httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1")))
        raise huggingface_hub.errors.RevisionNotFoundError("404\nInvalid rev id: nowhere", response=response)

    corpus = folder_of(Path("allenai/c4"), revision="nowhere")
    told = "path='allenai/c4': no network, and the set is on the hub; without one, data=synthetic and"
    assert refused(lambda: corpus.snapshot(tmp_path)).startswith(told)
    reach(monkeypatch)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unknown)
    told = "revision='nowhere': allenai/c4 has no such revision; give a commit, or main"
    assert refused(lambda: corpus.snapshot(tmp_path)) == told
    assert "needs a revision" in refused(lambda: folder_of(Path("x/y"), revision=" "))


def test_what_the_set_does_not_have_and_code_that_is_not_run(tmp_path: Path) -> None:
    tables(tmp_path / "set", datasets.Dataset.from_list([{"text": "a page"}]), "one")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "code.py").write_text("raise SystemExit(77)\n")
    for folder, change, told in (
        ("set", {"config": "two"}, "config='two': the set has no such config"),
        ("set", {"config": "one", "split": "trian"}, "split='trian': the set has no such split; did you mean 'train'?"),
        ("set", {"config": "one", "text": "{txet}"}, "text: the data have no field 'txet'; did you mean 'text'?"),
        ("code", {}, "is code, which is not run"),
    ):
        corpus = folder_of(tmp_path / folder, **change)
        assert told in refused(lambda corpus=corpus: list(corpus.snapshot(tmp_path).documents()))
