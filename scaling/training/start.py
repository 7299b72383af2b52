"""Starts: the weights that a run begins with, and those of a teacher. A run that draws its own needs nothing here.

A model takes every tensor of its start of the same name and shape. What the start does not have, has and is not used,
or has in another shape is refused by name, but for what `start.new` (drawn by the parametrization) and `start.unused`
name. A table with more rows than the start's keeps the start's rows, and its other rows are drawn.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from scaling.base.errors import ScalingError, from_os, refuse
from scaling.config import schema
from scaling.config.document import Config
from scaling.data import vectors
from scaling.data.codec import Codec
from scaling.data.source import Source
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.interop.location import listed
from scaling.interop.pretrained import pretrained
from scaling.interop.run import read
from scaling.model.family import Family
from scaling.model.parameters import parameters
from scaling.training.transfer import matches


@dataclass(frozen=True)
class Start:
    """The weights of a finished run, of a checkpoint, of a folder, or of a file of word vectors.

    `sha256` is of the weights, by which starts are compared. `new` and `unused` are the config's patterns. `drawn`,
    `grown` and `left` are names of tensors: those that the run draws, those of which it draws the last rows, and those
    of the start that it does not use.
    """

    saved: Saved = field(repr=False, compare=False)
    sha256: str
    new: tuple[str, ...]
    unused: tuple[str, ...]
    drawn: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    @classmethod
    def read(cls, config: Config) -> Start:
        """The run, the checkpoint or the folder that a config names."""
        section = config["start"]
        with reading(config, "start.run" if section.get("folder") is None else "start.folder"):
            place, step = str(section.get("run")), section.get("step")
            if section.get("folder") is not None:
                place = Path(os.path.expanduser(section["folder"]))
                fix = "name a folder of `scaling import`, or of transformers"
                refuse(not place.is_dir(), "there is no such folder", fix)
            elif step is None:  # only of a finished run
                place = pretrained(place, config["runs"]).folder
            saved = read(place, config["runs"], step)
            new, unused = (tuple(section.get(key) or ()) for key in ("new", "unused"))
            return cls(saved, saved.sha256, new, unused)

    @property
    def vocabulary(self) -> int | None:
        return self.saved.sections["size"].get("vocabulary")

    @property
    def is_kept(self) -> bool:
        """Whether the weights can be read again as they are, so that checkpoints may leave them out."""
        return "vectors" not in self.saved.place

    @property
    def name(self) -> str:
        """The start in an error."""
        place = self.saved.place
        return str(place.get("vectors") or place.get("folder") or f"run {place['run']} at step {place['step']}")

    @property
    def own(self) -> frozenset[str]:
        """Tensors of which not all numbers are the start's."""
        return self.drawn | self.grown

    @property
    def record(self) -> dict[str, Any]:
        """The place of the weights, and the hash by which they are known to be the same."""
        return {"sha256": self.sha256, **self.saved.place}

    def fitted(self, model: Family, added: Collection[str] = ()) -> Start:
        """How it goes into a model, or an error that lists every tensor that does not fit. Those that a tuning `added`
        may be missing: a start is a base, or tuned in the same way.
        """
        specs = {id(parameter): spec for spec, parameter in parameters(model)}
        missing, shaped, new, grown, used = list[str](), dict[str, str](), set[str](), set[str](), set[str]()
        for tensor, aliases in weights.aliases(model):
            name, there = aliases[0], [alias for alias in aliases if alias in self.saved.tensors]
            accepted = any(matches(alias, self.new) for alias in aliases)
            if not there:
                if not accepted and name not in added:
                    missing.append(name)
                new.add(name)
                continue
            base = self.saved.tensors[there[0]]
            used |= {alias for alias in there if alias == there[0] or torch.equal(self.saved.tensors[alias], base)}
            spec = specs.get(id(tensor))
            # A head may have a vector with a number for each token.
            is_vocabulary = tensor.ndim == base.ndim == 1 and len(base) == self.vocabulary
            by_row = spec is not None and (spec.role == "table" or (spec.slot == "head" and is_vocabulary))
            if base.shape == tensor.shape:
                if accepted and not by_row:
                    new.add(name)
                continue
            if not accepted:
                shaped[name] = f"{name} is {weights.shape(base)} instead of {weights.shape(tensor)}"
            more = base.ndim == tensor.ndim and base.shape[1:] == tensor.shape[1:] and len(base) < len(tensor)
            (grown if by_row and more else new).add(name)
        left = self.saved.tensors.keys() - used
        extra = [name for name in self.saved.tensors if name in left and not matches(name, self.unused)]
        if missing or shaped or extra:
            wrong = {"missing ": missing, "unused ": extra, "": [*shaped.values()]}
            what = "; ".join(head + listed(names) for head, names in wrong.items() if names)
            keys = {"start.new": [*missing, *shaped], "start.unused": extra}
            words = " and ".join(f"{key}={_patterns(names)}" for key, names in keys.items() if names)
            fix = f"set {words} where that is meant, or take the start's model"
            raise ScalingError(f"the weights of {self.name} do not fit the model: {what}", key="start", fix=fix)
        what, place = f"the run takes no tensor of {self.name}", {"key": "start.new", "value": list(self.new)}
        refuse(len(new) == len(weights.aliases(model)), what, "name only what is new", **place)
        return replace(self, drawn=frozenset(new), grown=frozenset(grown), left=frozenset(left))

    def check_tokenizer(self, source: Source) -> None:
        """Refuse data that are encoded by another tokenizer than the start was trained with, where both have one."""
        if source.codec is not None and self.saved.tokenizer is not None:
            own, start = source.codec, Codec.load(self.saved.tokenizer)
            what = f"the data have another tokenizer ({own.sha256[:12]}) than {self.name} ({start.sha256[:12]})"
            fix = f"take {{kind: File, path: {self.saved.tokenizer}}}, or another start"
            refuse(not own.is_same(start), what, fix, key="data.tokenizer")

    @torch.no_grad()
    def apply(self, model: Family) -> None:
        """Put the weights into a model whose parameters have been drawn."""
        for tensor, aliases in weights.aliases(model):
            if aliases[0] not in self.drawn:
                base = next(self.saved.tensors[alias] for alias in aliases if alias in self.saved.tensors)
                tensor[: len(base)].copy_(base) if aliases[0] in self.grown else tensor.copy_(base)


def of_vectors(config: Config, source: Source) -> tuple[Start, int]:
    """The table of an embedding from a file of word vectors, and how many tokens have one. All else is drawn."""
    file, codec = Path(os.path.expanduser(config["start.vectors"])), cast(Any, getattr(source, "codec", None))
    fix = "name a file of word2vec, GloVe or fastText"
    config.refuse(not file.is_file(), "start.vectors", "there is no such file", fix)
    config.refuse(codec is None, "start.vectors", "the data have no words", "take data of texts")
    spellings = tuple(codec.spellings(config["size.vocabulary"]))
    table, covered = vectors.table(file, spellings, config["size.width"], config["seed"])
    towers = {"Encoder": ["encoder"], "EncoderDecoder": ["encoder", "decoder"]}
    names = towers.get(config["model.kind"], ["decoder"])
    tensors = {f"{name}.embedding.table": torch.from_numpy(table) for name in names}
    saved = Saved({"size": {}}, tensors, place={"vectors": str(file)})
    return Start(saved, saved.sha256, ("*",), ("*",)), covered


@contextmanager
def reading(config: Config, key: str) -> Iterator[None]:
    """Place what is wrong with a run that a config names at the key that names it."""
    try:
        yield
    except ScalingError as error:
        within = "" if error.file is None else f"{error.file}: "
        raise config.error("start.step" if error.key == "step" else key, f"{within}{error.what}", error.fix) from None
    except OSError as error:
        raise config.error(key, from_os(error, "cannot be read").what) from None


def _patterns(names: Sequence[str]) -> str:
    """A list for the config: the names, or the parts that they are in where there are many."""
    if len(names) > 4:
        names = list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names))
    return f"[{', '.join(names)}]"


def teacher(config: Config, objective: Any) -> Saved:
    """The trained model that a distilling objective names, which reads the same rows as the student."""
    with reading(config, "objective.teacher"):
        taught = read(objective.teacher, config["runs"])
    model, size = (taught.sections[key] for key in ("model", "size"))
    is_other = schema.family(model) != schema.family(config["model"]) or size["length"] < config["size.length"]
    what = f"the teacher, of the kind {model['kind']}, reads {size['length']:,} tokens"
    config.refuse(is_other, "objective.teacher", what, "take one of the student's family, and of its size.length")
    what, fix = "the loss of a distilled model is its distance to the teacher's", "leave it out"
    config.refuse(config["train.smoothing"], "train.smoothing", what, fix)
    more = objective.vocabulary.size > size["vocabulary"]
    what = f"the data take {objective.vocabulary.size:,} token ids, and the teacher knows {size['vocabulary']:,}"
    config.refuse(more, "objective.teacher", what, "take a teacher with the tokenizer of the data")
    return taught
