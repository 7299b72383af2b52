"""Folders of transformers, config.json and model.safetensors, to and from our config and tensors.

The names of a model's tensors on either side are in `formats`, one table each; this module works with any of them.
transformers itself is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from tokenizers.processors import Sequence, TemplateProcessing
from torch import Tensor

from scaling.base import atomic
from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config.schema import joined, kinds
from scaling.data.codec import Codec
from scaling.data.store import TOKENIZER
from scaling.interop import weights
from scaling.interop.template import DERIVED, Format, complete, matched, to_ours, to_theirs
from scaling.model.family import Family
from scaling.model.tuned import blank, build_model

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
_SPECIALS = ("pad", "bos", "eos", "unk", "mask", "cls", "sep")
_IDS = {"pad": "pad_token_id", "bos": "bos_token_id", "eos": "eos_token_id", "start": "decoder_start_token_id"}
_FRAMES = {
    "Encoder": ("{cls} $A {sep}", "{cls} $A {sep} $B:1 {sep}:1"),
    "Decoder": ("{start} $A {extract}", "{start} $A {delim} $B:1 {extract}:1"),
    "EncoderDecoder": ("$A {eos}", "$A {eos} $B {eos}"),
}
"""How training frames a text and a pair of texts: sources of an encoder-decoder, or texts of a model with a head."""


@dataclass(frozen=True)
class Saved:
    """A model in our terms, as a folder holds it: the sections `model`, `size` and, where there is one, `tuning`, and
    the weights; where they are known the ids of special tokens by name (`pad`, `bos`, `eos`, `start`, a decoder's first
    token, and those that frame a text), the names of the classes that its head predicts, and its tokenizer; `place` is
    where it is, as {folder}, or {run, step} in a ledger.
    """

    sections: dict[str, Any]
    tensors: dict[str, Tensor]
    ids: Mapping[str, int] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    tokenizer: Path | None = None
    place: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """By which its weights are known to be the same."""
        return weights.digest(self.tensors)

    def model(self, device: torch.device | str = "cpu") -> Family:
        """The model with its weights, ready to evaluate."""
        model = build_model(self.sections)
        with torch.no_grad():
            for name, tensor in weights.of(model).items():
                tensor.copy_(self.tensors[name])
        return model.to(device).eval()


def empty(sections: Mapping[str, Any]) -> Family:
    """The model of the sections without its weights."""
    with blank():
        return build_model(sections)


def heads_of(sections: Mapping[str, Any]) -> int:
    """The number of heads of a tensor that is joined head by head, as formats of one tower do."""
    return sections["size"].get("heads", 1)


# Formats


def formats() -> dict[str, type[Format]]:
    """Every format by name, in the order in which they are tried: first those that joined."""
    extensions = joined("format")
    for name, form in extensions.items():
        refuse(
            not issubclass(form, Format), f"{name} is not a format", "derive it from scaling.interop.template.Format"
        )
    return extensions | kinds("format")


def choose(sections: Mapping[str, Any], name: str | None = None) -> tuple[type[Format], dict[str, Any]]:
    """The first format that can express this model, of those with that name or architecture, and its config.json."""
    ours, available = complete(sections["model"], sections["size"]), formats()
    forms = [form for key, form in available.items() if name in (None, key, form.architecture)]
    refuse(not forms, "invalid choice of a format", nearest(str(name), available), key="--format", value=name)
    kind = ours["model"]["kind"]
    tried = [(form, *matched(form, ours)) for form in forms if form.model["kind"] == kind]
    what = f"{name or 'transformers'} has no model of this kind"
    refuse(not tried, what, key="model.kind", value=kind)
    form, config, unlike = min(tried, key=lambda attempt: len(attempt[2]))
    if unlike:
        key, value, theirs = unlike[0]
        others = f" (and {len(unlike) - 1} more differences)" if len(unlike) > 1 else ""
        whose = form.architecture if name else f"transformers has no such model; the nearest, {form.architecture},"
        raise ScalingError(f"{whose} has {theirs}{others}", key=key, value=value)
    return form, config


def _candidates(config: Mapping[str, Any], path: Path) -> list[type[Format]]:
    """The formats that a config.json may be of, first those of the architecture that it names."""
    available, kind = formats().values(), config.get("model_type")
    candidates = [form for form in available if form.config["model_type"] == kind]
    fix = nearest(str(kind), {str(form.config["model_type"]) for form in available})
    refuse(not candidates, "no table for it", fix, file=path, key="model_type", value=kind)
    named = config.get("architectures") or []
    refuse(not isinstance(named, list), "expected a list of names", file=path, key="architectures", value=named)
    return sorted(candidates, key=lambda form: form.architecture not in named)


# Reading


def read(folder: str | Path) -> Saved:
    """Read a folder of transformers into our names, by the first format whose config and tensors fit."""
    folder = Path(folder)
    config, path = weights.read_object(folder, CONFIG, "transformers"), folder / CONFIG
    fitting, errors = list[tuple[type[Format], dict[str, Any], dict[str, Tensor]]](), list[ScalingError]()
    for form in _candidates(config, path):
        try:
            sections = form.read(config)
            fitting.append((form, sections, weights.of(empty(sections))))
        except ScalingError as error:
            errors.append(error.at(file=path))
    if fitting:  # what is wrong with the tensors is said of the formats that the config fits
        tensors, errors = weights.read_folder(folder), []
    for form, sections, ours in fitting:
        theirs = to_theirs(form.names, ours, heads_of(sections))
        try:
            plain = _plain(form, tensors, theirs)
            weights.check(plain, theirs)
        except ScalingError as error:
            errors.append(error.at(file=folder))
            continue
        converted = to_ours(form.names, ours, plain, heads_of(sections))
        converted |= {name: torch.zeros(ours[name].shape) for name in form.absent}
        tokenizer = folder / TOKENIZER if (folder / TOKENIZER).is_file() else None
        place = {"folder": str(folder.resolve())}
        return Saved(sections, converted, _known_ids(config, sections), tokenizer=tokenizer, place=place)
    raise errors[0]


def _plain(form: type[Format], stored: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file without what files may repeat or leave out."""
    names, tensors = {*expected, *form.copies}, dict[str, Tensor]()
    for name, tensor in stored.items():
        # Checkpoints made before these words were settled.
        word = re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name))
        tensors[form.prefix + word if form.prefix + word in names else word] = tensor
    for copy, source in form.copies.items():
        if copy not in expected and copy in tensors:
            tensor = tensors.pop(copy)
            same = torch.zeros_like(tensor) if source is None else tensors.setdefault(source, tensor)
            refuse(not torch.equal(same, tensor), f"{copy} should be {source or 'zero'} and is not")
        elif copy in expected and copy in form.omitted and source in tensors:
            tensors.setdefault(copy, tensors[source].clone())
    extra = [name for name in tensors if name not in expected]
    derived = {name for name in extra for pattern in DERIVED if fnmatch(name, pattern)}
    return {name: tensor for name, tensor in tensors.items() if name not in derived}


def _known_ids(config: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, int]:
    """The ids of special tokens, of several for one the first. Those of a model's first release are written by default,
    whatever the vocabulary.
    """
    given = {name: config.get(key) for name, key in _IDS.items()}
    tokens = {name: token[0] if isinstance(token, list) and token else token for name, token in given.items()}
    vocabulary = range(sections["size"]["vocabulary"])
    return {name: token for name, token in tokens.items() if isinstance(token, int) and token in vocabulary}


# Writing


def write(folder: str | Path, saved: Saved, name: str | None = None) -> type[Format]:
    """Write a folder that transformers loads, in the format of that name or the first that fits, and return which."""
    kind = (saved.sections.get("tuning") or {}).get("kind")
    refuse(kind, "transformers has no tuned model", "take its base", key="tuning.kind", value=kind)
    folder = Path(folder)
    form, config = choose(saved.sections, name)
    tensors = to_theirs(form.names, form.folded(saved.tensors), heads_of(saved.sections))
    dtype = next(iter(tensors.values())).dtype
    config = {**_ids(form, saved.ids), **config}
    config |= {"architectures": [form.architecture], "dtype": str(dtype).removeprefix("torch.")}
    if "id2label" in config:
        names = saved.labels or config["id2label"].values()
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
    folder.mkdir(parents=True, exist_ok=True)
    weights.save(folder / weights.FILE, tensors)
    atomic.write_json(folder / CONFIG, config)
    if saved.tokenizer is not None:
        write_tokenizer(folder, saved.tokenizer, saved)
    return form


def _ids(form: type[Format], ids: Mapping[str, int]) -> dict[str, int | None]:
    """The ids that transformers needs to generate; unspecified, a model would take those of its first release."""
    entries = {key: ids.get(name) for name, key in _IDS.items()}
    if form.model["kind"] == "EncoderDecoder":
        return entries | {_IDS["start"]: ids.get("start", ids.get("bos", 0)), "forced_eos_token_id": None}
    start = entries.pop(_IDS["start"])
    if form.model["kind"] == "Decoder" and start is not None:
        entries |= {_IDS["bos"]: start, _IDS["start"]: start}  # transformers reads the first, and we the second
    return entries


def write_tokenizer(folder: Path, tokenizer: Path, saved: Saved) -> None:
    """Put a tokenizer next to the weights that frames texts as the run does, and state which of its tokens are special;
    as `bos_token`, which stands for an empty text in transformers, the one that a decoder's texts begin after.
    """
    codec, model, ids = Codec.load(tokenizer), saved.sections["model"], saved.ids
    inner = codec.tokenizer
    added = sorted((number, name) for name, number in ids.items() if number >= codec.size)
    for number, name in added:  # the mask takes the space before it, as ours does
        inner.add_special_tokens([AddedToken(f"[{name.upper()}]", special=True, lstrip=name == "mask")])
        is_other = inner.token_to_id(f"[{name.upper()}]") != number
        refuse(is_other, f"its token {number} has no place behind the tokenizer's", file=tokenizer, key=name)
    spelled = {name: inner.id_to_token(token) for name, token in {**codec.specials, **ids}.items()}
    single, pair = _FRAMES[model["kind"]]
    names = set(re.findall(r"\{(\w+)\}", pair))
    if inner.num_special_tokens_to_add(is_pair=False) == 0 and names <= spelled.keys():
        tokens: Any = [(token, inner.token_to_id(token)) for token in {str(spelled[name]) for name in names}]
        frame = TemplateProcessing(single.format(**spelled), pair.format(**spelled), tokens)
        processor = inner.post_processor
        inner.post_processor = frame if processor is None else Sequence([processor, frame])
    if model["kind"] == "Decoder" and "start" in ids:
        spelled["bos"] = spelled["start"]
    special = {f"{name}_token": spelled[name] for name in _SPECIALS if name in spelled}
    segments = ["token_type_ids"] if (model.get("embedding") or {}).get("segments") else []
    inputs = ["input_ids", *segments, "attention_mask"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, **special}
    inner.encode_special_tokens = False  # a mask that is written in a text is one
    atomic.write(folder / TOKENIZER, inner.to_str(pretty=True) if added or inner.post_processor else codec.text)
    atomic.write_json(folder / TOKENIZER_CONFIG, {**settings, "model_max_length": saved.sections["size"]["length"]})
