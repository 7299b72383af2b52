"""The published sets: each shipped config reads a folder laid out as its set is on the hub; failures are one line."""

import gzip
from types import SimpleNamespace

import datasets
import httpx
import huggingface_hub
import pytest
import zstandard

from scaling.base.errors import BAD_INPUT, ScalingError
from scaling.config.compose import load, shipped
from scaling.config.schema import build
from scaling.data.documents import Document

ARTICLES = ("", " = One = \n", " text \n", " = = Part = = \n", " more \n", " = Two = \n", " end \n")
WHOLE = ("", " = One = \n text \n = = Part = = \n more \n", " = Two = \n end \n")
PAGE = b'{"text": "a page", "timestamp": "t", "meta": {"pile_set_name": "Pile-CC"}}\n'
# Some rows of each set as the hub has it, and the documents that come of them.
SETS = {
    "wikitext103": ([{"text": line} for line in ARTICLES], [(article, None) for article in WHOLE]),
    "openwebtext": ([{"text": "a page"}], [("a page", None)]),
    "fineweb_edu": ([{"text": "a page", "id": "1", "score": 3.5}], [("a page", None)]),
    "wmt14_en_de": ([{"translation": {"de": "eins", "en": "one"}}], [("eins", "one")]),
    "wmt14_en_fr": ([{"translation": {"fr": "un", "en": "one"}}], [("un", "one")]),
    "c4": ([], [("a page", None)]),
    "pile": ([], [("a page", None)]),
}


def written(home, config, splits, rows):
    """CONFIG/SPLIT-00000-of-00001.parquet, and a README that says so: how nearly all sets lie on the hub."""
    for split in splits:
        datasets.Dataset.from_list(rows).to_parquet(home / config / f"{split}-00000-of-00001.parquet")
    listed = "".join(f"  - split: {split}\n    path: {config}/*{split}*\n" for split in splits)
    (home / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{listed}---\n")


HUB = [file for file in (shipped() / "data").rglob("*.yaml") if "kind: Hub" in file.read_text()]


@pytest.mark.parametrize("name", sorted(file.stem for file in HUB))
def test_each_set_is_read_in_its_layout(name, tmp_path):
    line, home = load("decoder", [f"data={name}"])["data.corpus"], tmp_path / "set"
    splits = [line.get("split", "train"), *([line["validation"]] if line.get("validation") else [])]
    rows, expected = SETS[name]
    if name == "pile":  # nothing is said: the split is read off the folder's name
        (home / "train").mkdir(parents=True)
        for file in ("train/00.jsonl.zst", "val.jsonl.zst", "test.jsonl.zst"):
            (home / file).write_bytes(zstandard.compress(PAGE))
    else:
        written(home, line.get("config") or "default", splits, rows)
    if name == "c4":  # compressed JSON lines
        for split in splits:
            (home / "en" / f"{split}-00000-of-00001.parquet").unlink()
            (home / "en" / f"c4-{split}.00000-of-00001.json.gz").write_bytes(gzip.compress(PAGE))
    corpus = load("decoder", [f"data={name}", f"data.corpus.path={home}"]).build("data").corpus
    named, snapshot = ["validation", "train"] if line.get("validation") else [None], corpus.snapshot(tmp_path)
    assert list(snapshot.documents()) == [Document(*each, split=split) for split in named for each in expected]
    assert corpus.changed(snapshot.stamp) is None
    next(file for file in home.rglob("*") if file.is_file()).write_bytes(b"another")
    assert corpus.changed(snapshot.stamp) is not None


def of_hub(path, **line):
    return build("corpus", {"kind": "Hub", "path": str(path), "revision": "main", **line})


def reach(monkeypatch, dataset_info):
    """Let the hub answer."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.utils, "get_session", lambda: SimpleNamespace(head=lambda *_, **__: None))
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)


def test_a_branch_is_pinned_to_its_commit(tmp_path, monkeypatch):
    asked, commit = {}, "0123456789" * 4

    def load_dataset(path, config, **options):
        asked.update(options, path=path, config=config)
        return datasets.Dataset.from_list([{"text": "a page"}]).to_iterable_dataset()

    reach(monkeypatch, lambda *_, **__: SimpleNamespace(sha=commit))
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    snapshot = of_hub("x/y").snapshot(tmp_path)
    assert [document.text for document in snapshot.documents()] == ["a page"]
    assert snapshot.stamp == {"path": "x/y", "commit": commit}
    assert asked == {"path": "x/y", "config": None, "split": "train", "revision": commit, "streaming": True}


def test_what_the_hub_or_a_set_does_not_have_and_code_that_is_not_run(tmp_path, monkeypatch):
    def refused(message, path, **line):
        with pytest.raises(ScalingError) as caught:
            list(of_hub(path, **line).snapshot(tmp_path).documents())
        assert caught.value.code == BAD_INPUT
        assert "\n" not in str(caught.value)
        assert message in str(caught.value)

    def unknown(*_, **__):
        response = httpx.Response(404, request=httpx.Request("GET", "http://127.0.0.1"))
        raise huggingface_hub.errors.RevisionNotFoundError("404\nInvalid rev id: nowhere", response=response)

    refused("path='x/y': no network, and the set is on the hub; without one, data=synthetic and", "x/y")
    reach(monkeypatch, unknown)
    refused("revision='no': x/y has no such revision; give a commit, or main", "x/y", revision="no")
    refused("needs a revision", "x/y", revision=" ")
    home = tmp_path / "set"
    written(home, "one", ["train"], [{"text": "a page"}])
    refused("config='two': the set has no such config", home, config="two")
    refused("split='trian': the set has no such split; did you mean 'train'?", home, config="one", split="trian")
    refused("text: the data have no field 'txet'; did you mean 'text'?", home, config="one", text="{txet}")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "code.py").write_text("raise SystemExit(77)\n")
    refused("is code, which is not run", tmp_path / "code")
