"""Prepare data, and look at them: counts, bytes per token, and windows as the model meets them.

scaling data list                               the shipped data, and what of them is prepared
scaling data prepare python                     read, tokenize and pack it; goes on where it was stopped
scaling data prepare files data.corpus.files='text/*.txt'
scaling data prepare --model my_config.yaml     the data that a config names
scaling data show python                        counts, and some windows with what the objective makes of them
scaling data show python objective=Masked --windows 2
scaling data show python --verify               take every file's hash again
scaling data vectors python --to python.vec     vectors of its words by skip-gram, which start.vectors reads
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.command.document import numbered
from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    from scaling.config import Config
    from scaling.data.describe_row import Run
    from scaling.data.source import Data, Source

ACTIONS = ("list", "prepare", "show", "vectors")
MODEL = "decoder"  # its config supplies sizes and objective where neither a model nor an objective is named
STYLES = {
    "text": "",
    "other": "blue",
    "special": "bold magenta",
    "prefix": "cyan",
    "kept": "underline green",
    "changed": "bold yellow",
    "target": "green",
    "silent": "dim",
    "filling": "dim",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="list|prepare|show|vectors")
    parser.add_argument("words", nargs="*", metavar="NAME|key=value", help="a file of configs/data, and overrides")
    parser.add_argument("--model", metavar="NAME", help="the config to take, with its data where none are named")
    parser.add_argument("--windows", type=int, default=3, metavar="N", help="how many windows to show (%(default)s)")
    parser.add_argument("--to", metavar="FILE", help="of vectors: where they are written, in word2vec's text format")
    parser.add_argument("--width", type=int, default=64, metavar="N", help="numbers of a vector (%(default)s)")
    parser.add_argument("--window", type=int, default=5, metavar="N", help="words to each side (%(default)s)")
    parser.add_argument("--tokens", type=int, default=1_000_000, metavar="N", help="tokens to learn from (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the vectors (%(default)s)")
    parser.add_argument("--verify", action="store_true", help="take every file's hash again, touched or not")
    parser.add_argument("--extend", metavar="PATH", help="a Python file whose classes join the slots they name")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> None:
    if arguments.action not in ACTIONS:
        raise ScalingError(f"there is nothing like {arguments.action!r} to do", fix=nearest(arguments.action, ACTIONS))
    if arguments.windows < 0:
        raise ScalingError("expected a number from 0", key="--windows", value=arguments.windows)
    if arguments.action == "list":
        _list(arguments)
        return
    config = _config(arguments)
    try:
        {"prepare": _prepare, "show": _show, "vectors": _vectors}[arguments.action](config, arguments)
    except ScalingError as error:
        raise config.place(error) from error


def _config(arguments: argparse.Namespace) -> Config:
    from scaling.config import load, split

    names, overrides = split(arguments.words)
    if len(names) > 1:
        raise ScalingError("one at a time", value=" ".join(names), key="NAME")
    named = names or arguments.model or any(word.lstrip("-").startswith("data=") for word in overrides)
    if not named:
        raise ScalingError("no data are named", fix=f"write scaling data {arguments.action} NAME, for example python")
    words = [*(f"data={name}" for name in names), *overrides]
    config = load(arguments.model or MODEL, words, extend=arguments.extend)
    # Only `show` needs the objective's family, and finding it takes torch.
    if arguments.action == "show" and arguments.model is None and (family := _family(config)) != MODEL:
        config = load(family, words, extend=arguments.extend)  # the shipped models have the names of their families
    return config


def _family(config: Config) -> str:
    """The family that the objective is made for first of all, with the task's answers where the data are a task."""
    from scaling import build

    objective: Any = build.kinds("objective").get(config["objective.kind"])
    if hasattr(objective, "families_for"):
        return objective.families_for(config["data"].get("answer"))[0]
    return getattr(objective, "families", (MODEL,))[0]


def _prepare(config: Config, arguments: argparse.Namespace) -> None:
    from scaling.data.mixture import Mixture
    from scaling.data.prepare import prepare
    from scaling.data.store import root
    from scaling.data.task import Task
    from scaling.data.text import Text
    from scaling.data.tokens import Tokens

    data, folder = config.build("data"), root(config["runs"])
    home = None  # of one line of data, and no tokens, which stay where they are: to open them is to look through them
    parts = data.domains.values() if isinstance(data, Mixture) else [data]
    if not any(isinstance(part, Text | Tokens | Task) for part in parts):
        raise ScalingError(f"{type(data).__name__} needs no preparing: it is drawn as it is read", key="data.kind")
    for part in parts:
        if isinstance(part, Text | Task):
            made = part.prepare(folder) if isinstance(part, Task) else prepare(part, folder)
            home = made if part is data else None
    _tell(home, _sources(config, data), config, arguments)


def _vectors(config: Config, arguments: argparse.Namespace) -> None:
    from scaling.data.store import root

    if arguments.to is None:
        raise ScalingError("there is no file to write", key="--to", fix="name one, as words.vec")
    if arguments.tokens < 1:
        raise ScalingError("expected a positive number", key="--tokens", value=arguments.tokens)
    source = config.build("data").open("train", root(config["runs"]))
    if getattr(source, "codec", None) is None or not hasattr(source, "documents"):
        raise ScalingError("the data have no words", key="data", fix="take data of texts, as python")

    from scaling.data.vectors import write
    from scaling.inside.skip_gram import SkipGram, named

    learned = SkipGram(width=arguments.width, window=arguments.window, seed=arguments.seed)
    vectors = named(learned.fit(source, arguments.tokens), source.codec)
    write(Path(arguments.to), vectors)
    if arguments.json:
        print(json.dumps(numbered({"file": arguments.to, "words": len(vectors), "width": arguments.width}), indent=2))
    else:
        print(f"{arguments.to}: {len(vectors):,} words, {arguments.width} numbers each")


def _show(config: Config, arguments: argparse.Namespace) -> None:
    from scaling.data.manifest import Manifest
    from scaling.data.store import check, root
    from scaling.data.text import Text

    data = config.build("data")
    home = data.home(root(config["runs"])) if isinstance(data, Text) else None
    if home is not None and arguments.verify:
        check(home, Manifest.read(home), trust=False)
    sources = _sources(config, data)
    rows = _rows(config, sources["train"], arguments.windows) if arguments.windows else []
    _tell(home, sources, config, arguments, rows)


def _rows(config: Config, source: Source, count: int) -> list[dict[str, list[Run]]]:
    """The first rows of the first batch, as the model meets them."""
    from scaling import build
    from scaling.data.batches import training
    from scaling.data.describe_row import describe_row
    from scaling.data.plan import BatchSize
    from scaling.data.source import Vocabulary

    family = build.kinds("model")[config["model.kind"]].family  # type: ignore[attr-defined]
    objective = config.build("objective", Vocabulary.of(source), config["size.length"], family)
    batch = training(source, objective, BatchSize.of(count), config["seed"]).batch(0)
    shown = range(min(count, batch.rows))
    return [describe_row(batch, row, source, objective.vocabulary, family) for row in shown]


def _sources(config: Config, data: Data) -> dict[str, Source]:
    from scaling.data.source import SPLITS
    from scaling.data.store import root

    return {split: data.open(split, root(config["runs"])) for split in SPLITS}


def _tell(
    home: Path | None,
    sources: Mapping[str, Source],
    config: Config,
    arguments: argparse.Namespace,
    rows: Sequence[Mapping[str, Sequence[Run]]] = (),
) -> None:
    length = config["size"].get("length")
    counts = {split: _counts(split, source, home, length) for split, source in sources.items()}
    if arguments.json:
        counts = {split: {**counted, **_deprecated(counted)} for split, counted in counts.items()}
        windows = [{line: [asdict(run) for run in runs] for line, runs in row.items()} for row in rows]
        document = {"folder": None if home is None else str(home), **counts, **({"windows": windows} if rows else {})}
        print(json.dumps(numbered(document), indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("" if home is None else home.name)
    for split in counts:
        table.add_column(split, justify="right")
    counts = {split: _labelled(counted) for split, counted in counts.items()}
    for row in dict.fromkeys(key for counted in counts.values() for key in counted):
        nothing = "endless" if row == "tokens" or row.startswith("windows") else "–"
        table.add_row(row, *(_cell(counted.get(row), nothing) for counted in counts.values()))
    console = Console(highlight=False)
    console.print(table)
    if home is not None:
        print(f"in {home}")
    for number, row in enumerate(rows):
        console.rule(f"{config['objective.kind']}, row {number} of step 0", style="dim")
        for line, runs in row.items():
            console.print(Text(f"{line:<9}", "bold"), Text.assemble(*((run.text, STYLES[run.kind]) for run in runs)))


def _counts(split: str, source: Source, home: Path | None, length: int | None) -> dict[str, Any]:
    from scaling.data.manifest import Manifest
    from scaling.data.task.task import is_task

    counts: dict[str, Any] = {"fingerprint": source.fingerprint, "tokens": source.tokens}
    if home is not None and not is_task(source):
        manifest = Manifest.read(home)
        counts |= {what: manifest.count(split, what) for what in ("documents", "bytes", "unknown")}
        counts |= {"unknown_fraction": counts["unknown"] / source.tokens if source.tokens else None}
    if length is not None:
        windows = source.windows(length)
        if is_task(source):
            counts |= {"examples": windows}
        elif source.lengths is not None:
            counts |= {"pairs": windows}
        else:
            counts |= {"windows": windows, "window_length": length}
    counts |= {"vocabulary": source.vocabulary, "bytes_per_token": source.bytes_per_token}
    return counts | ({} if source.entropy is None else {"entropy_nats_per_token": source.entropy})


def _labelled(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts under the headings of the table."""
    labels = {
        "windows": f"windows of {counts.get('window_length')}",
        "unknown_fraction": "unknown, of all tokens",
        "bytes_per_token": "bytes per token",
        "entropy_nats_per_token": "entropy, nats per token",
    }
    return {labels.get(key, key): value for key, value in counts.items() if key != "window_length"}


def _deprecated(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the JSON had before they were snake_case, for scripts that read them."""
    old = _labelled({key: value for key, value in counts.items() if key != "unknown_fraction"})
    labelled = {key.replace(" per token", " a token"): value for key, value in old.items()}
    return {key: value for key, value in labelled.items() if key not in counts}


def _cell(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else str(value)


def _list(arguments: argparse.Namespace) -> None:
    from scaling.config import load, shipped
    from scaling.data.store import root
    from scaling.data.text import Text, prepared

    folder = shipped() / "data"
    overrides = [word for word in arguments.words if "=" in word]
    entries, requests = [], {}
    home = root(load(MODEL, overrides)["runs"])
    for file in sorted(folder.rglob("*.yaml")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        data = load(MODEL, [f"data={name}", *overrides]).build("data")
        if isinstance(data, Text):
            requests[name] = data.request
        entries.append({"name": name, "about": _about(file), "prepared": None, "overrides": []})
    for line in prepared(home):
        fingerprint = line.pop("fingerprint")
        words = {name: _differences(request, line) for name, request in requests.items()}
        name = min(
            words, key=lambda name: (requests[name]["corpus"]["kind"] != line["corpus"]["kind"], len(words[name]))
        )
        about = next(entry["about"] for entry in entries if entry["name"] == name)
        entries.append({"name": name, "about": about, "prepared": fingerprint, "overrides": words[name]})
    # A shipped set that is prepared replaces its line of one that is not.
    whole = {entry["name"] for entry in entries if entry["prepared"] and not entry["overrides"]}
    listed = [entry for entry in entries if entry["prepared"] or entry["name"] not in whole]
    listed.sort(key=lambda entry: (entry["name"], entry["overrides"]))
    if arguments.json:
        print(json.dumps(listed, indent=2))
        return
    width = max(len(entry["name"]) for entry in listed)
    for entry in listed:
        status = "" if entry["prepared"] is None else f"  [{entry['prepared']}]"
        print(f"{entry['name']:<{width}}  {shlex.join(entry['overrides']) or entry['about']}{status}")


def _differences(shipped: Mapping[str, Any], line: Mapping[str, Any], above: str = "data") -> list[str]:
    """The overrides that make a data line of a shipped one; a piece of another kind is written out whole."""
    words = []
    for key, value in line.items():
        before = shipped.get(key)
        if value == before:
            continue
        if isinstance(value, dict) and isinstance(before, Mapping) and value.get("kind") == before.get("kind"):
            words += _differences(before, value, f"{above}.{key}")
        else:
            words.append(_override(f"{above}.{key}", value))
    return words


def _override(key: str, value: Any) -> str:
    """The word that sets a key to a value: as a person writes it where that is read as the same value."""
    from scaling.config import flow, override

    try:
        plain = isinstance(value, str) and override(f"{key}={value}")[1] == value
    except ScalingError:
        plain = False
    return f"{key}={value if plain else flow(value)}"


def _about(file: Path) -> str:
    """The description in a config's comment, up to the first citation or full stop."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r" \(|\.(?: |$)", text)[0]
