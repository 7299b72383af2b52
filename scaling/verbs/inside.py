"""Look inside a trained model: attention maps, linear probes, the loss near the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.json_lines import flat
from scaling.base.numbers import NonNegativeFloat, PositiveFloat, PositiveInt, Range, Seed, SmallInt
from scaling.base.printing import interval, tabulate
from scaling.verbs.model import load
from scaling.verbs.verb import RUNS, Output, Result, RunName, frame, verb

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from scaling.inside.look import Map

FIGURES = Output((".png", ".pdf", ".svg"))
PAGE = Output((".html",))
MEASURES = ("accuracy", "control", "selectivity")


@dataclass(frozen=True, repr=False)
class Attention(Result):
    """The weights of the heads of a run over one text. `maps` has a map for each mixer with a softmax: its `weights`
    [heads, queries, keys], `layer`, `slot` (mixer or cross) and `tower`. `tokens` are the tokens that each tower read.
    """

    maps: Sequence[Map] = field(kw_only=True)

    @property
    def heads(self) -> pandas.DataFrame:
        """One row for each head: entropy in nats, mean distance, the weight of the previous token, the distance with
        the highest weight and that weight, and induction (`scaling.inside.look.scores`).
        """
        return frame(self.document["heads"])

    def save(self, path: str | Path | None) -> Self:
        """Write a page (.html) with every head of every layer."""
        from scaling.inside.look import page

        if path is not None:
            PAGE.check(path)
            atomic.write(Path(path), page(self.document, self.maps, f"Attention of {self.run}"))
        return self


@verb
def look(
    run: RunName,
    text: Annotated[str, "the text that the model reads, in quotes"],
    *,
    target: Annotated[str | None, "the output of an encoder-decoder (default: its own output)"] = None,
    to: Annotated[str | Path | None, PAGE, "write a page (.html) to this file"] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
) -> Attention:
    """Show the attention map of each head of a run for one text.

        scaling look 3f2a "the law of the land" --to look.html    the scores of each head, and a page with its maps
        scaling look marian "the law" --target "das Gesetz"       an encoder-decoder, with a given output

    An encoder reads `[MASK]` in the text as its mask. An encoder-decoder reads the text and writes `--target`. A model
    without a tokenizer reads token ids. A separate code path computes the maps, so training is not slower.
    """
    from scaling.inside.look import look

    model = load(run, runs=runs, device=device)
    name = model.saved.place.get("run") or model.saved.place.get("folder") or run
    document, maps = look(model.module, model.ids, model.tokenizer, model.framed(text, target))
    heads = document["heads"]
    titles = [key for key in list(heads[0])[3:] if any(one[key] is not None for one in heads)]
    names = [layer["name"] for layer, one in zip(document["layers"], maps) for _ in one.weights]
    rows = [[layer, *map(one.get, titles)] for layer, one in zip(names, heads, strict=True)]
    document = {"run": str(name), "text": text, **document}
    return Attention(document, [tabulate(["layer", *titles], rows)], maps=maps).save(to)


@dataclass(frozen=True, repr=False)
class Probe(Result):
    """The accuracy of a linear classifier that reads the stream of each layer of a run, on held-out texts. Layer 0 is
    the input of the first block; `majority` and `type` are the accuracy of the most common class, of all or of a word.
    """

    @property
    def layers(self) -> pandas.DataFrame:
        """One row for each layer: `accuracy`, `control` (the accuracy of the control task) and `selectivity` (their
        difference), each with the bounds `_low` and `_high` of its 95% interval over the texts.
        """
        rows = (flat(row) for row in self.document["layers"])
        return frame([{key.removesuffix(".value").replace(".", "_"): row[key] for key in row} for row in rows])


@verb
def probe(
    run: RunName,
    task: Annotated[str, "ranks, successor, or a task of tags"],
    *overrides: str,
    step: Annotated[int | None, "use the weights of this checkpoint (default: the result's weights)"] = None,
    tokens: Annotated[PositiveInt, "labelled tokens of each split"] = 20_000,
    penalty: Annotated[NonNegativeFloat, "the penalty of the classifier's squared weights"] = 1e-3,
    seed: Annotated[Seed, "the seed of the control task"] = 0,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Probe:
    """Train a linear classifier on each layer of a run, and one on a control task that can only be memorised.

        scaling probe 3f2a ranks         for a synthetic language: the hidden rank of each symbol
        scaling probe 3f2a successor     for a synthetic language: the most likely next symbol
        scaling probe 3f2a conll2003 data.files.train=eng.train data.files.validation=eng.testa --step 2000

    In the control task each word has a random class. (Hewitt and Liang 2019)
    """
    from scaling.inside import probe as probing
    from scaling.interop.pretrained import pretrained

    source = pretrained(run, runs)
    classes, texts = probing.texts_of(source, task, overrides, runs)
    model = load(source.folder, device=device, step=step)
    reading = probing.Reading(model.family, model.ids, source.length)
    train, test = (probing.some(texts(split, reading), tokens) for split in ("train", "validation"))
    largest = max((max(text.tokens) for text in (*train, *test)), default=0)
    if largest >= (size := model.config["size"]["vocabulary"]):
        raise ScalingError(f"token {largest} is beyond the vocabulary of {size}", key="TASK", fix="take its tokenizer")
    pad = model.ids.get("pad", 0)
    scores = probing.probe(model.module, train, test, len(classes), penalty=penalty, seed=seed, pad=pad)
    document = {"run": source.folder.name, "task": task, "step": model.saved.place.get("step"), "classes": [*classes]}
    document |= {"train": sum(len(text.labels) for text in train), "test": sum(len(text.labels) for text in test)}
    document |= probing.baselines(train, test)
    document["layers"] = [{"layer": layer, **each} for layer, each in enumerate(scores)]
    at = "" if document["step"] is None else f" at step {document['step']:,}"
    counts = f"{plural(document['train'], 'token')} to learn from, {document['test']:,} held out"
    rows = [
        [row["layer"], *(f"{row[name]['value']:.3f} {interval(row[name], '.3f')}" for name in MEASURES)]
        for row in document["layers"]
    ]
    parts = [
        f"run {document['run']}{at}, {task}: {len(classes)} classes, {counts}",
        f"commonest class {document['majority']:.3f}, of each word or symbol {document['type']:.3f}",
        tabulate(["layer", *MEASURES], rows),
    ]
    return Probe(document, parts)


@dataclass(frozen=True, repr=False)
class Landscape(Result):
    """The held-out loss of runs on a plane around their weights. `losses` has an array [side, side] for each run, in
    nats per target. Each of `runs` has the `loss` in the middle, its mean increase on the `border`, and `roughness`:
    the root mean square of the second differences, divided by the range.
    """

    losses: Mapping[str, np.ndarray] = field(default_factory=dict)

    def save(self, path: str | Path | None) -> Self:
        """Draw the contours of all runs on one scale: .png, .pdf or .svg."""
        from scaling.inside.effects import save

        if path is not None:
            FIGURES.check(path)
            save(self.losses, self.reach, Path(path))
        return self


@verb
def landscape(
    run: RunName,
    *others: Annotated[RunName, "further runs for the same figure"],
    side: Annotated[int, Range(least=3, most=999), "number of points on each side, an odd number"] = 21,
    reach: Annotated[PositiveFloat, "the extent of the plane: 1 is as large as the weights"] = 1.0,
    seed: Annotated[Seed, "the seed of the directions"] = 0,
    windows: Annotated[SmallInt, "number of held-out windows"] = 64,
    to: Annotated[str | Path | None, FIGURES, "write the contours to this file: .png, .pdf or .svg"] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
) -> Landscape:
    """Measure the held-out loss around the weights of runs, on a plane of two random directions.

        scaling landscape 3f2a --to landscape.png          the increase of the loss, and a figure
        scaling landscape 3f2a 71c0 --to both.pdf          two runs with one colour scale

    The filters of the directions are as large as those of the weights. (Li et al. 2018) The loss is the mean over
    held-out windows of the data that each run was trained on.
    """
    from scaling.interop.pretrained import pretrained

    refuse(side % 2 == 0, "expected an odd number, so that the model is in the middle", key="side", value=side)
    sources = [pretrained(one, runs) for one in (run, *others)]
    if unknown := [source.folder.name for source in sources if "objective" not in source.sections]:
        raise ScalingError("its training data are unknown", key="RUN", value=unknown[0], fix="name a run of the ledger")

    from scaling.inside import effects as around

    losses = {}
    for source in sources:
        model = load(source.folder, device=device).module
        losses[source.folder.name] = around.landscape(model, around.held_out(source, windows), side, reach, seed)
    each = [{"run": name, **around.rises(loss), "losses": loss.tolist()} for name, loss in losses.items()]
    rows = [list(one.values())[:-1] for one in each]
    table = tabulate(["run", "loss", "rise at the border", "roughness"], rows)
    return Landscape({"reach": reach, "runs": each}, [table], losses=losses).save(to)
