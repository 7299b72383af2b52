"""Start: the weights that a run begins with, those of another run or of a folder.

A model takes every tensor of the same name and shape. What the start does not have, has and is not used, or has in
another shape is refused by name, but for what `start.new` (drawn by the parametrization) and `start.unused` name. A
table with more rows than the start's keeps the start's rows, and its other rows are drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaling.base.errors import ScalingError, from_os
from scaling.config.compose import Config
from scaling.data import vectors
from scaling.data.source import Source
from scaling.interop import weights
from scaling.interop.huggingface import Saved
from scaling.interop.run import read
from scaling.model.family import Family
from scaling.model.parameters import parameters
from scaling.training.finetune import listed, pretrained
from scaling.training.parts import matches


@dataclass(frozen=True)
class Start:
    """The weights of a finished run, of a checkpoint, of a folder, or of a file of word vectors.

    `new` and `unused` are the config's patterns. `drawn`, `grown` and `left` are names of tensors: those that the run
    draws, those of which it draws the last rows, and those of the start that it does not use.
    """

    saved: Saved = field(repr=False, compare=False)
    sha256: str
    new: tuple[str, ...]
    unused: tuple[str, ...]
    drawn: frozenset[str] = frozenset()
    grown: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()

    @classmethod
    def read(cls, config: Config) -> Start | None:
        """The start that a config names; None where it names none."""
        section = config.tree.get("start")
        if section is None or section.get("vectors") is not None:
            return None
        with reading(config, "start.run" if section.get("folder") is None else "start.folder"):
            saved = _named(section, config["runs"])
            new, unused = (tuple(section.get(key) or ()) for key in ("new", "unused"))
            return cls(saved, weights.digest(saved.tensors), new, unused)

    @classmethod
    def of_vectors(cls, config: Config, source: Source) -> tuple[Start, int] | None:
        """The table of an embedding from a file of word vectors, and how many tokens have one; None where the config
        names no file. All else is drawn.
        """
        section = config.tree.get("start") or {}
        if section.get("vectors") is None:
            return None
        file = Path(section["vectors"]).expanduser()
        if not file.is_file():
            raise config.error("start.vectors", "there is no such file", "name a file of word2vec, GloVe or fastText")
        codec = getattr(source, "codec", None)
        if codec is None:
            raise config.error("start.vectors", "the data have no words", "take data of texts")
        covered = vectors.table(
            file, tuple(codec.spellings(config["size.vocabulary"])), config["size.width"], config["seed"]
        )
        towers = {"Encoder": ["encoder"], "EncoderDecoder": ["encoder", "decoder"]}
        names = towers.get(config["model.kind"], ["decoder"])
        tensors = {f"{name}.embedding.table": torch.from_numpy(covered.table) for name in names}
        saved = Saved({"size": {}}, tensors, place={"vectors": str(file)})
        return cls(saved, weights.digest(tensors), ("*",), ("*",)), covered.covered

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
        """By which the weights are found again, and known to be the same."""
        return {"sha256": self.sha256, **self.saved.place}

    def fitted(self, model: Family, added: Collection[str] = ()) -> Start:
        """How it goes into a model, or an error that lists every tensor that does not fit. Those that a tuning `added`
        may be missing: a start is a base, or tuned in the same way.
        """
        specs = {id(parameter): spec for spec, parameter in parameters(model)}
        missing, shaped, drawn, grown, used = list[str](), dict[str, str](), set[str](), set[str](), set[str]()
        for tensor, aliases in _tensors(model):
            name, there = aliases[0], [alias for alias in aliases if alias in self.saved.tensors]
            accepted = any(matches(alias, self.new) for alias in aliases)
            if not there:
                if not accepted and name not in added:
                    missing.append(name)
                drawn.add(name)
                continue
            base = self.saved.tensors[there[0]]
            used |= {alias for alias in there if alias == there[0] or torch.equal(self.saved.tensors[alias], base)}
            spec = specs.get(id(tensor))
            # A head may have a vector with a number for each token.
            is_vocabulary = tensor.ndim == base.ndim == 1 and len(base) == self.vocabulary
            by_row = spec is not None and (spec.role == "table" or (spec.slot == "head" and is_vocabulary))
            if base.shape == tensor.shape:
                if accepted and not by_row:
                    drawn.add(name)
                continue
            if not accepted:
                shaped[name] = f"{name} is {weights.shape(base)} instead of {weights.shape(tensor)}"
            more = base.ndim == tensor.ndim and base.shape[1:] == tensor.shape[1:] and len(base) < len(tensor)
            (grown if by_row and more else drawn).add(name)
        left = self.saved.tensors.keys() - used
        extra = [name for name in self.saved.tensors if name in left and not matches(name, self.unused)]
        if missing or shaped or extra:
            wrong = {"missing ": missing, "unused ": extra, "": [*shaped.values()]}
            what = "; ".join(head + listed(names) for head, names in wrong.items() if names)
            keys = {"start.new": [*missing, *shaped], "start.unused": extra}
            words = " and ".join(f"{key}={_patterns(names)}" for key, names in keys.items() if names)
            fix = f"set {words} where that is meant, or take the start's model"
            raise ScalingError(f"the weights of {self.name} do not fit the model: {what}", key="start", fix=fix)
        if len(drawn) == len(_tensors(model)):
            what = f"the run takes no tensor of {self.name}"
            raise ScalingError(what, key="start.new", value=list(self.new), fix="name only what is new")
        return replace(self, drawn=frozenset(drawn), grown=frozenset(grown), left=frozenset(left))

    def check_tokenizer(self, source: Source) -> None:
        """Refuse data that are encoded by another tokenizer than the start was trained with, where both have one."""
        own: str | None = getattr(source, "tokenizer", None)
        if own is None or self.saved.tokenizer is None:
            return
        with self.saved.tokenizer.open("rb") as file:
            start = hashlib.file_digest(file, "sha256").hexdigest()
        if own != start:
            raise ScalingError(
                f"the data have another tokenizer ({own[:12]}) than {self.name} ({start[:12]})",
                key="data.tokenizer",
                fix=f"take {{kind: File, path: {self.saved.tokenizer}}}, or another start",
            )

    @torch.no_grad()
    def apply(self, model: Family) -> None:
        """Put the weights into a model whose parameters have been drawn."""
        for tensor, aliases in _tensors(model):
            if aliases[0] not in self.drawn:
                base = next(self.saved.tensors[alias] for alias in aliases if alias in self.saved.tensors)
                tensor[: len(base)].copy_(base) if aliases[0] in self.grown else tensor.copy_(base)


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


def _tensors(model: Family) -> list[tuple[Tensor, list[str]]]:
    """Each tensor of a model with all its names: a tied table has several."""
    names: dict[int, tuple[Tensor, list[str]]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), (tensor, []))[1].append(name)
    return list(names.values())


def _named(section: Mapping[str, Any], runs: Path) -> Saved:
    """What a section names: a folder, a checkpoint of a run, or a finished run."""
    if section.get("folder") is not None:
        folder = Path(section["folder"]).expanduser()
        if not folder.is_dir():
            fix = "name a folder of `scaling import`, or of transformers"
            raise ScalingError("there is no such folder", fix=fix)
        return read(folder, runs)
    run = str(section["run"])
    return read(pretrained(run, runs).folder if section.get("step") is None else run, runs, section.get("step"))


def _patterns(names: Sequence[str]) -> str:
    """A list for the config: the names, or the parts that they are in where there are many."""
    if len(names) > 4:
        names = list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names))
    return f"[{', '.join(names)}]"
