"""Sets of the `datasets` library: published on the hub, copied to a folder, or written by `save_to_disk`.

What is on the hub is pinned to a commit, and no code of a set is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.data import rows
from scaling.data.rows import Row

_PATIENCE = 3.0  # seconds to find out whether there is a network
_ROWS = 256  # rows of a saved set that are in memory at once
_REFUSALS = (
    ("RepositoryNotFound", "the hub has no such set, or hides it", "path", "log in to it if it is gated"),
    ("BuilderConfig|Config name is missing", "the set has no such config", "config", None),
    ("(?i)ValueError.*split", "the set has no such split", "split", None),
    ("evision", "{} has no such revision", "revision", "give a commit, or main"),
    (
        "scripts are no longer supported",
        "{} is code, which is not run",
        "revision",
        "revision: refs/convert/parquet holds many such sets as tables",
    ),
)
"""What the library's messages say, in our words, and the key that is wrong."""


def quiet_datasets() -> ModuleType:
    """`datasets`, set to print nothing and to count no downloads."""
    import datasets
    import datasets.config

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


@dataclass(frozen=True)
class Published:
    """A set on the hub, a copy of it, or one that `save_to_disk` wrote; `otherwise` is the way without a network."""

    path: str
    revision: str
    config: str | None
    otherwise: str

    @property
    def folder(self) -> Path | None:
        """The folder of a copy."""
        folder = Path(os.path.expanduser(self.path))
        return folder if folder.is_dir() else None

    @property
    def is_saved(self) -> bool:
        return self.folder is not None and rows.is_saved(self.folder)

    @cached_property
    def commit(self) -> str:
        """The commit that the revision names now: branches move, commits do not."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        try:  # one quick question, because `datasets` would ask again for minutes
            return str(HfApi().dataset_info(self.path, revision=self.revision, timeout=_PATIENCE).sha)
        except (HfHubHTTPError, ValueError) as error:  # the hub's answer, or a name that no set can have
            raise self._refused(error, "") from error
        except Exception as error:  # the transport's own types are not OSErrors, and differ between its versions
            what = "no network, and the set is on the hub"
            raise ScalingError(what, key="path", value=self.path, fix=self.otherwise) from error

    @cached_property
    def stamp(self) -> dict[str, Any]:
        """A text that names the content of the set."""
        if self.folder is None:
            return {"path": self.path, "commit": self.commit}
        files = sorted(file for file in self.folder.rglob("*") if file.is_file())
        for file in files:  # `datasets` ends the process at a line `null`
            if not self.is_saved and rows.format_of(file) == "json" and ".json" not in file.suffixes:
                for _ in rows.read(file):
                    pass
        return rows.stamp(files)

    def shards(self, split: str, key: str = "split") -> list[list[int]]:
        """The number of each shard that a split is read in, with their number; `key` is that of its name."""
        dataset = self._dataset(split, key)
        if self.is_saved:
            count = len(rows.spread(len(dataset), -(-dataset.data.nbytes // rows.PART)))
        else:
            count = dataset.num_shards
        return [[number, count] for number in range(count)]

    def rows(self, split: str, shard: int = 0, count: int = 1) -> Iterator[Row]:
        """The rows of a split, or of one of its shards, classes by name."""
        dataset = self._dataset(split)
        read: Iterable[Row] = dataset
        try:
            if self.is_saved:
                chosen = dataset.select(range(*rows.spread(len(dataset), count)[shard])).with_format("arrow")
                read = chain.from_iterable(map(_records, chosen.iter(_ROWS)))
            elif count > 1:
                read = dataset.shard(count, shard)
            yield from _labelled(read, dataset.features)
        except Exception as error:
            what = f"{self.path} could not be read further: {_line(error)}"
            raise ScalingError(what, fix="run the same command again: it resumes") from error

    def _dataset(self, split: str, key: str = "split") -> Any:
        datasets, folder = quiet_datasets(), self.folder
        if self.is_saved:
            return self._saved(datasets, split, key)
        path, commit = (self.path, self.commit) if folder is None else (str(folder), None)
        try:
            return datasets.load_dataset(path, self.config, split=split, revision=commit, streaming=True)
        except Exception as error:
            raise self._refused(error, split) from error

    def _saved(self, datasets: Any, split: str, key: str) -> Any:
        """A split of a saved set, which is the whole one where the set has no splits."""
        try:
            saved = datasets.load_from_disk(str(self.folder))
        except Exception as error:  # arrow's, json's and the library's own, by what is damaged
            what = f"the set cannot be read: {_line(error)}"
            raise ScalingError(what, file=self.folder, fix="save it again") from error
        if not isinstance(saved, datasets.Dataset):
            refuse(split not in saved, "the set has no such split", nearest(split, saved), key=key, value=split)
            return saved[split]
        fix = "leave it out: data.validation is the fraction of documents that is held out"
        refuse(key != "split", "the folder holds one set without splits", fix, key=key, value=split)
        return saved

    def _refused(self, error: Exception, split: str) -> ScalingError:
        """`datasets` reports what it does not find by several types; the message distinguishes them."""
        words = f"{type(error).__name__}: {error}"
        for pattern, what, key, fix in _REFUSALS:
            if re.search(pattern, words):
                value = split if key == "split" else getattr(self, key)
                choices = re.findall(r"'([^']+)'", words.split("[", 1)[-1])
                return ScalingError(what.format(self.path), key=key, value=value, fix=fix or nearest(value, choices))
        what = f"{self.path} does not open: {_line(error)}"
        return ScalingError(what, key="path", value=self.path, fix=self.otherwise)


def _records(table: Any) -> list[Row]:
    """The rows of a table of arrow, whose reader ends the process at places that lie outside the file."""
    table.validate(full=True)
    return table.to_pylist()


def _labelled(dataset: Iterable[Row], features: Mapping[str, Any] | None) -> Iterator[Row]:
    """Rows with classes by name, those of lists too; a number below 0 is a class that is kept secret."""

    def named(value: Any, classes: list[str]) -> Any:
        if isinstance(value, list | tuple):
            return [named(each, classes) for each in value]
        return None if value is None or value < 0 else classes[value]

    columns = {column: getattr(each, "feature", each) for column, each in (features or {}).items()}
    classes = {column: feature.names for column, feature in columns.items() if hasattr(feature, "names")}
    for row in dataset:
        yield {**row, **{column: named(row[column], names) for column, names in classes.items()}}


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
