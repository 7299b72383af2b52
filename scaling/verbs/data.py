"""Prepare data, and show them: counts, bytes per token, and windows as the model reads them."""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from scaling.base.errors import CONTROL, ScalingError
from scaling.base.json_lines import flat
from scaling.base.numbers import MOST_ROWS, PositiveInt, Range
from scaling.base.printing import cell, tabulate
from scaling.config import schema
from scaling.config.compose import load, override
from scaling.config.document import Config
from scaling.config.files import shipped
from scaling.config.strict_yaml import flow
from scaling.verbs.explain import comment
from scaling.verbs.verb import Executor, Result, verb

MODEL = "decoder"  # its config supplies sizes and objective where neither a model nor an objective is named
STYLES = {"text": "", "other": "blue", "special": "bold magenta", "prefix": "cyan", "kept": "underline green"}
STYLES |= {"changed": "bold yellow", "target": "green", "silent": "dim", "filling": "dim"}


@verb
def data_list(*overrides: str, **settings: Any) -> Result:
    """List the shipped data sets and those that are prepared, with their overrides."""
    from scaling.data.store import root
    from scaling.data.text import Text, prepared
    from scaling.ledger.document import differences

    folder, abouts, requests = shipped() / "data", {}, {}
    for file in sorted(folder.rglob("*.yaml")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        abouts[name] = re.split(r" \(|\.(?: |$)", comment(file))[0]  # up to the first citation or full stop
        data = load(MODEL, [f"data={name}", *overrides]).build("data")
        if isinstance(data, Text):
            requests[name] = data.request
    document: list[dict[str, Any]] = []
    for line in prepared(root(load(MODEL, overrides)["runs"])):
        fingerprint, _, values = line.pop("fingerprint"), line.pop("stamp"), flat(line)
        changes = {name: differences(request, line).keys() & values for name, request in requests.items()}
        alike = [name for name, request in requests.items() if request["corpus"]["kind"] == line["corpus"]["kind"]]
        name = min(alike or requests, key=lambda name: len(changes[name]))
        words = [_override(f"data.{key}", value) for key, value in values.items() if key in changes[name]]
        document.append({"name": name, "about": abouts[name], "prepared": fingerprint, "overrides": words})
    as_shipped = {entry["name"] for entry in document if not entry["overrides"]}
    others = [{"name": name, "about": abouts[name], "prepared": None, "overrides": []} for name in abouts]
    document += [entry for entry in others if entry["name"] not in as_shipped]
    document.sort(key=lambda entry: (entry["name"], entry["overrides"]))
    rows = [[each["name"], each["prepared"], shlex.join(each["overrides"]) or each["about"]] for each in document]
    return Result(document, [tabulate(["name", "prepared", "what it is"], rows)])


def _override(key: str, value: Any) -> str:
    """The override that sets a key, in short form if this form has the same value."""
    with suppress(ScalingError):
        if override(f"{key}={value}") == (key, value):
            return f"{key}={value}"
    return f"{key}={flow(value)}"


@verb
def data_prepare(
    name: Annotated[str | None, "a file of configs/data, or a file or folder of your own"] = None,
    *overrides: str,
    model: Annotated[str | None, "the config; its data are used if NAME is left out"] = None,
    workers: Annotated[PositiveInt | None, "jobs at a time (on this machine one for each core)"] = None,
    executor: Executor = "local",
    set: Mapping[str, Any] = {},
    **settings: Any,
) -> Result:
    """Read, tokenize and pack a corpus; each part is a job.

        scaling data prepare python
        scaling data prepare reviews.csv data.corpus.text={review}
        scaling data prepare --model my_config.yaml     the data of a config
        scaling data prepare c4 --executor slurm --workers 32 --set timeout_min=60

    A part that is done is not read again.
    """
    loaded = _config(name, overrides, model)

    from scaling.data.mixture import Mixture
    from scaling.data.store import root
    from scaling.data.task.task import Task
    from scaling.data.text import Text, in_turn, prepare
    from scaling.data.tokens import Tokens

    folder = root(loaded["runs"])

    def run(jobs: Sequence[Any]) -> None:
        from scaling.executors import Resources
        from scaling.executors.scheduler import Job, finish, started
        from scaling.training.machine import cores  # imports torch

        slots = min(workers or cores(), len(jobs))
        if executor == "local" and slots < 2 and not set:  # which no job of this machine takes: `started` refuses it
            return in_turn(jobs)
        resources = Resources(threads=max(1, cores() // slots) if executor == "local" else 1)
        with started(executor, folder / "preparing", slots, 0, workers, set) as work:
            finish(work, (Job(name, (function, *arguments), resources) for name, function, arguments in jobs))

    with loaded.placing():
        data = loaded.build("data")
        parts = data.domains.values() if isinstance(data, Mixture) else [data]
        if not any(isinstance(part, Text | Tokens | Task) for part in parts):
            raise ScalingError(f"{type(data).__name__} needs no preparing: it is drawn as it is read", key="data.kind")
        for part in parts:
            if isinstance(part, Task):
                part.prepare(folder)
            elif isinstance(part, Text):
                prepare(part, folder, run)
        return _result(_counts(loaded, data)[0])  # tokens stay where they are: to open them is to look through them


@verb
def data_show(
    name: Annotated[str | None, "a file of configs/data, or a file or folder of your own"] = None,
    *overrides: str,
    model: Annotated[str | None, "the config; its data are used if NAME is left out"] = None,
    windows: Annotated[int, Range(least=0, most=MOST_ROWS), "number of windows to show"] = 3,
    verify: Annotated[bool, "hash every file again, also unchanged files"] = False,
    **settings: Any,
) -> Result:
    """Show counts of prepared data, and some windows.

        scaling data show python
        scaling data show python objective=Masked --windows 2

    Colours show the effect of the objective on the windows.
    """
    from scaling.data.batches import describe_row, training
    from scaling.data.plan import BatchSize
    from scaling.data.source import objective_of

    loaded = _config(name, overrides, model)
    if model is None:
        kind: Any = schema.kinds("objective").get(loaded["objective.kind"])
        of_task = getattr(kind, "families_for", None)
        families = of_task(loaded["data"].get("answer")) if of_task else getattr(kind, "families", (MODEL,))
        if families[0] != MODEL:
            loaded = _config(name, overrides, families[0])  # the shipped models have the names of their families
    with loaded.placing():
        data = loaded.build("data")
        document, source = _counts(loaded, data)
        for each in (source.sources or (source,)) if verify else ():
            each.verify()
        if windows:
            objective = objective_of(loaded, source)
            batch = training(source, objective, BatchSize.of(windows), loaded["seed"]).batch(0)
            others = (source, objective.vocabulary, schema.family(loaded["model"]))
            document["windows"] = [describe_row(batch, row, *others) for row in range(min(windows, batch.rows))]
        return _result(document)


def _config(name: str | None, overrides: Sequence[str], model: str | None) -> Config:
    named = [] if name is None else [f"data={name}"]
    if not (named or model or any(word.startswith("data=") for word in overrides)):
        raise ScalingError("no data are named", fix="name a file of configs/data, for example python")
    return load(model or MODEL, [*named, *overrides])


def _counts(loaded: Config, data: Any) -> tuple[dict[str, Any], Any]:
    """The size of each split, if the data state it, and the source of the training split."""
    from scaling.data.source import SPLITS
    from scaling.data.store import root

    length = loaded["size"].get("length")
    sources = {split: data.open(split, root(loaded["runs"])) for split in SPLITS}
    folder = sources["train"].folder
    document: dict[str, Any] = {"folder": None if folder is None else str(folder)}
    for split, source in sources.items():
        counts = {"fingerprint": source.fingerprint, "tokens": source.tokens, **source.counts()}
        if length is not None:
            counts[source.gives] = source.windows(length)
            counts |= {"window_length": length} if source.gives == "windows" else {}
        counts |= {"vocabulary": source.vocabulary, "bytes_per_token": source.bytes_per_token}
        document[split] = counts | ({} if source.entropy is None else {"entropy_nats_per_token": source.entropy})
    return document, sources["train"]


def _result(document: dict[str, Any]) -> Result:
    """The counts of the splits, and the `windows` of the first batch if the document has some."""
    from rich.console import Console
    from rich.text import Text

    splits, rows = [document["train"], document["validation"]], []
    for key in dict.fromkeys(key for split in splits for key in split):
        nothing = "endless" if key in ("tokens", "windows") else "–"
        cells = (nothing if split.get(key) is None else cell(split[key]) for split in splits)
        rows.append([key.replace("_", " "), *cells])
    place = [] if document["folder"] is None else [f"in {document['folder']}"]
    console = Console(highlight=False)  # colours are for a terminal alone
    with console.capture() as printed:
        for number, window in enumerate(document.get("windows", ())):
            console.rule(f"row {number} of step 0", style="dim")
            for line, pieces in window.items():
                texts = ((CONTROL.sub("�", piece["text"]), STYLES[piece["kind"]]) for piece in pieces)
                console.print(Text(f"{line:<9}", "bold"), Text.assemble(*texts))
    windows = filter(None, [printed.get().rstrip("\n")])
    return Result(document, [tabulate(["", "train", "validation"], rows), *place, *windows])
