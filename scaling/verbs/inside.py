"""Look inside a trained model: attention maps, linear probes, the loss around the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural
from scaling.base.printing import interval
from scaling.config.schema import NonNegativeFloat, PositiveFloat, PositiveInt, Range, Seed, SmallInt
from scaling.verbs.model import load
from scaling.verbs.verb import RUNS, Result, RunName, verb

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from scaling.inside.look import Look, Map

FIGURES = (".png", ".pdf", ".svg")
PAGE = (".html",)
MEASURES = ("accuracy", "control", "selectivity")


@dataclass(frozen=True, repr=False)
class Attention(Result):
    """The weights of the heads of a run over one text. `maps` has a map for each mixer with a softmax, in the order in
    which they run: its `weights` are an array [heads, queries, keys], and `layer`, `slot` (mixer or cross) and `tower`
    identify it. `tokens` are those that each tower read.
    """

    seen: Look = field(kw_only=True)

    @property
    def maps(self) -> Sequence[Map]:
        return self.seen.maps

    @property
    def heads(self) -> pandas.DataFrame:
        """A row a head: entropy in nats, mean distance, the weight of the previous token, the distance with the highest
        weight and that weight, and induction (`scaling.inside.look.scores`).
        """
        import pandas

        return pandas.DataFrame(self.document["heads"])

    def save(self, path: str | Path) -> None:
        """Write a page (.html) with every head of every layer."""
        from scaling.inside.look import page

        _check_ending(path, PAGE)
        atomic.write(Path(path), page(self.seen, f"Attention of {self.run}"))


@verb
def look(
    run: RunName,
    text: str,
    *,
    target: str | None = None,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
) -> Attention:
    """Show the attention map of each head of a run over one text.

        scaling look 3f2a "the law of the land"                   the scores of each head
        scaling look 3f2a "the law of the land" --to look.html    and a page with every head of every layer
        scaling look marian "the law" --target "das Gesetz"       an encoder-decoder, with what it is to write

        scaling.look("3f2a", "the law of the land").save("look.html")

    An encoder reads `[MASK]` in the text as its mask. An encoder-decoder reads the text and writes `--target`. A model
    without a tokenizer reads token ids. The maps are made by a second path, which does not slow down training.

    Args:
        text: what the model reads, in quotes
        target: what an encoder-decoder writes (what it would write)
        to: write a page (.html) to this file
    """
    from scaling.inside.look import look

    if to is not None:
        _check_ending(to, PAGE)
    model = load(run, runs=runs, device=device)
    name = model.saved.place.get("run") or model.saved.place.get("folder") or run
    shown = look(model.module, model.ids, model.tokenizer, model.framed(text, target))
    layers = [
        {"name": name, "tower": each.tower, "layer": each.layer, "slot": each.slot}
        for name, each in zip(shown.names, shown.maps, strict=True)
    ]
    document = {"run": str(name), "text": text, "tokens": shown.tokens, "layers": layers, "heads": shown.heads}
    titles = [key for key in list(shown.heads[0])[3:] if any(one[key] is not None for one in shown.heads)]
    names = [layer for layer, each in zip(shown.names, shown.maps, strict=True) for _ in range(each.heads)]
    rows = [[layer, *map(one.get, titles)] for layer, one in zip(names, shown.heads, strict=True)]
    seen = Attention(document, [(["layer", *titles], rows)], seen=shown)
    if to is not None:
        seen.save(to)
    return seen


@dataclass(frozen=True, repr=False)
class Probe(Result):
    """How well a linear classifier predicts a task from the stream of each layer of a run, on held-out texts.

    `classes` are what is predicted; `train` and `test` count the labelled tokens. `majority` and `type` are the
    accuracy of the commonest class, and of the commonest class of each word or symbol. Layer 0 is the input of the
    first block.
    """

    @property
    def layers(self) -> pandas.DataFrame:
        """A row a layer: `accuracy`, `control` (the accuracy of the control task) and `selectivity`, their difference,
        each with the bounds `_low` and `_high` of its 95% interval over the texts.
        """
        import pandas

        layers = pandas.json_normalize(self.document["layers"], sep="_")
        return layers.rename(columns=lambda name: name.removesuffix("_value"))


@verb
def probe(
    run: RunName,
    task: str,
    *overrides: str,
    step: int | None = None,
    tokens: PositiveInt = 20_000,
    penalty: NonNegativeFloat = 1e-3,
    seed: Seed = 0,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Probe:
    """Train a linear classifier on each layer of a run, and one on a control task that only memory solves.

        scaling probe 3f2a ranks                     of a run on a synthetic language: the hidden rank of each symbol
        scaling probe 3f2a successor                 of the same: the likeliest next symbol
        scaling probe 3f2a conll2003 data.files.train=eng.train data.files.validation=eng.testa --step 2000

        scaling.probe("3f2a", "conll2003", data__files={"train": "eng.train"}).layers

    In the control task each word has a class drawn at random. (Hewitt and Liang 2019) key=value are overrides of the
    task.

    Args:
        task: ranks, successor, or a task whose answer is tags
        step: take the weights of a checkpoint (those of the result)
        tokens: labelled tokens of each split
        penalty: of the classifier's squared weights
        seed: draws the control task
    """
    from scaling.inside.probe import Reading, baselines, some, texts_of
    from scaling.inside.probe import probe as scored
    from scaling.training.finetune import pretrained

    source = pretrained(run, runs)
    classes, texts = texts_of(source, task, overrides, runs)
    model = load(source.folder, device=device, step=step)
    reading = Reading(model.family, model.ids, source.size["length"])
    train, test = (some(texts(split, reading), tokens) for split in ("train", "validation"))
    largest = max((max(text.tokens) for text in (*train, *test)), default=0)
    if largest >= (size := model.config["size"]["vocabulary"]):
        what = f"token {largest} is beyond the vocabulary of {size}"
        raise ScalingError(what, key="TASK", fix="take the tokenizer that the run was trained with")
    pad = model.ids.get("pad", 0)
    scores = scored(model.module, train, test, len(classes), penalty=penalty, seed=seed, pad=pad)
    document = {"run": source.folder.name, "task": task, "step": model.saved.place.get("step"), "classes": [*classes]}
    document |= {"train": sum(len(text.labels) for text in train), "test": sum(len(text.labels) for text in test)}
    document |= baselines(train, test)
    document["layers"] = [
        {"layer": layer, **{name: asdict(score) for name, score in own.items()}} for layer, own in enumerate(scores)
    ]
    at = "" if document["step"] is None else f" at step {document['step']:,}"
    counts = f"{plural(document['train'], 'token')} to learn from, {document['test']:,} held out"
    rows = [
        [row["layer"], *(f"{row[name]['value']:.3f} {interval(row[name], '.3f')}" for name in MEASURES)]
        for row in document["layers"]
    ]
    parts = [
        f"run {document['run']}{at}, {task}: {len(classes)} classes, {counts}",
        f"commonest class {document['majority']:.3f}, of each word or symbol {document['type']:.3f}",
        (["layer", *MEASURES], rows),
    ]
    return Probe(document, parts)


@dataclass(frozen=True, repr=False)
class Landscape(Result):
    """The held-out loss of runs on a plane around their weights, spanned by two random directions whose filters are as
    large as the weights'. `losses` has an array [side, side] for each run, in nats per target, the run in the middle.
    Each of `runs` has the `loss` in the middle, the mean rise on the border of the plane (`border`), and the
    `roughness`: the root mean square of the second differences, over the range.
    """

    losses: Mapping[str, np.ndarray] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Draw the contours of all runs on one scale: .png, .pdf or .svg."""
        from scaling.inside.landscape import save

        _check_ending(path, FIGURES)
        save(self.losses, self.reach, Path(path))


@verb
def landscape(
    run: RunName,
    *others: RunName,
    side: Annotated[int, Range(least=1, most=999)] = 21,
    reach: PositiveFloat = 1.0,
    seed: Seed = 0,
    windows: SmallInt = 64,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
    device: str | None = None,
) -> Landscape:
    """Measure the held-out loss around the weights of runs, on a plane of two random directions.

        scaling landscape 3f2a --to landscape.png          how much the loss rises, and a figure
        scaling landscape 3f2a 71c0 --to both.pdf          two runs on one scale of colours

        scaling.landscape("3f2a", "71c0").save("landscape.png")

    The filters of the directions are as large as the weights'. (Li et al. 2018) The loss is of held-out windows of the
    data that each run was trained on.

    Args:
        others: runs to draw beside it
        side: points to a side, an odd number
        reach: how far the plane goes: 1 is as large as the weights
        seed: draws the directions
        windows: held-out windows
        to: draw the contours to this file: .png, .pdf or .svg
    """
    from scaling.training.finetune import pretrained

    if side % 2 == 0:
        raise ScalingError("expected an odd number, so that the model is in the middle", key="side", value=side)
    if to is not None:
        _check_ending(to, FIGURES)
    sources = [pretrained(one, runs) for one in (run, *others)]
    for source in sources:
        if "objective" not in source.sections:
            what = "what it was trained on is not known here"
            raise ScalingError(what, key="RUN", value=source.folder.name, fix="name a run of the ledger")

    from scaling.inside.landscape import held_out, rises
    from scaling.inside.landscape import landscape as around

    losses = {}
    for source in sources:
        model = load(source.folder, device=device).module
        losses[source.folder.name] = around(model, held_out(source, windows, runs), side, reach, seed)
    each = [{"run": name, **rises(loss), "losses": loss.tolist()} for name, loss in losses.items()]
    rows = [list(one.values())[:-1] for one in each]
    table = ["run", "loss", "rise at the border", "roughness"], rows
    drawn = Landscape({"reach": reach, "runs": each}, [table], losses=losses)
    if to is not None:
        drawn.save(to)
    return drawn


def _check_ending(path: str | Path, endings: Sequence[str]) -> None:
    """Refuse a file to write that has another ending."""
    if Path(path).suffix not in endings:
        fix = f"take {', '.join(endings)}"
        raise ScalingError("there is no such kind of file", key="to", value=str(path), fix=fix)
