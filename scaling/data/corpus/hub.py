"""Published sets from the hub through `datasets`: pinned to a revision, and without running any code of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot, document, limited, sides
from scaling.errors import ScalingError, nearest
from scaling.schema import Long

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PATIENCE = 1.5  # seconds to find out whether there is a network
OFFLINE = (
    "without one, data=synthetic and data=python always work, {kind: Files, files: …} reads your own, and corpus.path "
    "may be a folder that holds a copy of the set"
)


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A split of a set on the hub; `path` is its name there, or a folder with a copy of it.

    `text` and `source` are templates over a row's fields; with `source`, documents are pairs of which `text` is the
    target. Where rows are lines of longer documents, `begins` is a pattern that the first line of each matches.
    `limit` is in bytes of text.
    """

    path: str
    revision: str
    config: str | None = None
    split: str = "train"
    validation: str | None = None
    text: str = "{text}"
    source: str | None = None
    begins: str | None = None
    limit: Long | None = None
    reading: Literal["streaming", "cached"] = "streaming"

    def __post_init__(self) -> None:
        if not self.revision.strip():
            raise ScalingError("a set on the hub needs a revision", key="revision", fix="give a commit, or main")

    @property
    def sides(self) -> tuple[str, ...]:
        return sides(self.source)

    def snapshot(self, folder: Path) -> Snapshot:
        local = Path(self.path).expanduser()
        if reading.is_saved(local):
            fix = f"write data.corpus='{{kind: Saved, path: {self.path}}}'"
            what = "the folder holds a data set that `save_to_disk` wrote"
            raise ScalingError(what, key="path", value=self.path, fix=fix)
        if local.is_dir():
            stamp: dict[str, Any] = {"files": reading.stamp(sorted(f for f in local.rglob("*") if f.is_file()))}
            revision = None
        else:
            revision = self._commit()
            stamp = {"path": self.path, "commit": revision}

        def documents() -> Iterator[Document]:
            if self.validation is not None:
                yield from self._read(self.validation, "validation", revision)
            train = self._read(self.split, None if self.validation is None else "train", revision)
            yield from limited(train, self.limit)

        return Snapshot(stamp, self.limit, documents)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp.get("files", {}))

    def _commit(self) -> str:
        """The commit that the revision names now: branches move, commits do not."""
        if _COMMIT.fullmatch(self.revision):
            if self.reading == "streaming":
                _reach(self.path)
            return self.revision
        _reach(self.path)
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

        try:
            commit = HfApi().dataset_info(self.path, revision=self.revision, timeout=10).sha
        except RevisionNotFoundError as error:
            raise self._bad_revision() from error
        except RepositoryNotFoundError as error:
            raise ScalingError(
                "the hub has no such set, or hides it", key="path", value=self.path, fix="log in to it if it is gated"
            ) from error
        except Exception as error:  # the transport's own types are no OSErrors, and differ between its versions
            raise ScalingError(f"the hub does not answer: {_line(error)}", fix=OFFLINE) from error
        if commit is None:
            raise self._bad_revision()
        return commit

    def _bad_revision(self) -> ScalingError:
        return ScalingError(f"{self.path} has no such revision", key="revision", value=self.revision)

    def _read(self, split: str, name: str | None, revision: str | None) -> Iterator[Document]:
        rows = self._labelled(split, revision)
        if self.begins is not None:
            rows = _joined(rows, re.compile(self.begins))
        documents = (document(row, self.text, self.source, name) for row in rows)
        yield from (entry for entry in documents if entry is not None)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of `split`, classes by name."""
        local = Path(self.path).expanduser().is_dir()
        return self._labelled(self.split, None if local else self._commit())

    def _labelled(self, split: str, revision: str | None) -> Iterator[Mapping[str, Any]]:
        dataset = self._open(split, revision)
        return labelled(self._rows(dataset), dataset.features)

    def _open(self, split: str, revision: str | None) -> Any:
        library = reading.quiet_datasets()
        if revision is None:
            self._check_lines()
        try:
            return library.load_dataset(
                str(Path(self.path).expanduser()) if revision is None else self.path,
                self.config,
                split=split,
                revision=revision,
                streaming=self.reading == "streaming",
            )
        except Exception as error:
            raise self._refused(error, split) from error

    def _check_lines(self) -> None:
        """Refuse JSON lines that are no records before `datasets` reads them: `null` ends the process there."""
        for file in sorted(Path(self.path).expanduser().rglob("*.*")):
            if file.is_file() and reading.builder(file) == "json" and ".json" not in file.suffixes:
                for _ in reading.rows([file]):
                    pass

    def _rows(self, dataset: Any) -> Iterator[Mapping[str, Any]]:
        try:
            yield from dataset
        except Exception as error:  # as above
            raise ScalingError(
                f"{self.path} could not be read on: {_line(error)}", fix="run the same command again: it resumes"
            ) from error

    def _refused(self, error: Exception, split: str) -> ScalingError:
        """`datasets` reports what it does not find by several types; the message distinguishes them."""
        words = str(error)
        if "BuilderConfig" in words or "Config name is missing" in words:
            choices = re.findall(r"'([^']+)'", words.split("[", 1)[-1])
            return ScalingError(
                "the set has no such config", key="config", value=self.config, fix=nearest(str(self.config), choices)
            )
        if "split" in words.lower() and isinstance(error, ValueError):
            choices = re.findall(r"'([^']+)'", words.split("[", 1)[-1])
            return ScalingError("the set has no such split", key="split", value=split, fix=nearest(split, choices))
        if "evision" in words:
            return self._bad_revision()
        if "scripts are no longer supported" in words:
            return ScalingError(
                f"{self.path} is code, which is not run",
                key="revision",
                value=self.revision,
                fix="revision: refs/convert/parquet holds many such sets as tables",
            )
        if isinstance(error, ConnectionError):
            return ScalingError(f"no network, and {self.path} is not in the cache", fix=OFFLINE)
        return ScalingError(f"{self.path} does not open: {_line(error)}", key="path")


def _reach(path: str) -> None:
    """One quick question, because the library itself would ask again for minutes."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    unreachable = ScalingError(f"no network, and {path} is on the hub", fix=OFFLINE)
    if constants.HF_HUB_OFFLINE:
        raise unreachable
    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
    except Exception as error:  # the session's own types differ between its versions
        raise unreachable from error


def labelled(rows: Iterable[Mapping[str, Any]], features: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Rows with classes by name, those of lists too; -1 is a label that is kept secret."""
    features = features or {}
    labels = {column: feature.names for column, feature in features.items() if hasattr(feature, "names")}
    lists = {column: feature.feature for column, feature in features.items() if hasattr(feature, "feature")}
    lists = {column: feature.names for column, feature in lists.items() if hasattr(feature, "names")}
    for row in rows:
        named: dict[str, Any] = {column: _name(row[column], names) for column, names in labels.items()}
        listed = {column: [_name(number, names) for number in row[column] or []] for column, names in lists.items()}
        yield {**row, **named, **listed}


def _name(label: int | None, names: list[str]) -> str | None:
    return None if label is None or label < 0 else names[label]


def _joined(rows: Iterator[Mapping[str, Any]], begins: re.Pattern[str]) -> Iterator[Mapping[str, Any]]:
    """Rows whose `text` is the lines from one that begins a document up to the next."""
    lines: list[str] = []
    for row in rows:
        line = row["text"]
        if begins.search(line) and lines:
            yield {"text": "".join(lines)}
            lines = []
        lines.append(line)
    if lines:
        yield {"text": "".join(lines)}


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
