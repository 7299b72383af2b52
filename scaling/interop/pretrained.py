"""The model that a word of a command names, as its folder states it. torch is not needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scaling.base.errors import refuse
from scaling.data import store
from scaling.interop.location import SPEC, locate
from scaling.ledger import Ledger

if TYPE_CHECKING:
    from scaling.data.codec import Codec

_FAMILIES = {"Encoder": "encoder", "Decoder": "decoder", "BiLM": "decoder", "EncoderDecoder": "encoder_decoder"}


@dataclass(frozen=True)
class Pretrained:
    """What a folder states about a model without its weights: its sections `model` and `size`, of a run all sections of
    its spec; `start` names it in a config.
    """

    folder: Path
    start: Mapping[str, Any]
    sections: Mapping[str, Any]
    tokenizer: Path | None

    @property
    def family(self) -> str:
        return _FAMILIES.get(self.sections["model"]["kind"], "encoder")

    @property
    def length(self) -> int:
        """The tokens that the model reads at most."""
        return self.sections["size"]["length"]

    @property
    def codec(self) -> Codec:
        """The tokenizer; a run that reads no text is refused."""
        from scaling.data.codec import Codec

        what, fix = "the run has no tokenizer, so it reads no text", "take a run that was trained on text"
        refuse(self.tokenizer is None, what, fix, key="RUN", value=self.folder.name)
        return Codec.load(cast(Path, self.tokenizer))

    @property
    def runs(self) -> Path:
        """The folder of its ledger, beside which its data are."""
        return self.folder.parents[1]

    @property
    def data(self) -> Mapping[str, Any]:
        """The line `data` that it was trained on; empty where that is not known."""
        return {key: value for key, value in (self.sections.get("data") or {}).items() if key != "fingerprint"}


def pretrained(name: str | os.PathLike[str], runs: str | Path = "runs") -> Pretrained:
    """The model that a word names (`locate`): a finished run, or a folder of ours or of transformers."""
    folder = locate(name, runs)
    if not (folder / SPEC).is_file():
        from scaling.interop.run import read

        saved, start = read(folder), {"folder": str(folder)}
        return Pretrained(folder, start, saved.sections, saved.tokenizer)
    ledger, run = Ledger.open(folder.parents[1]), folder.name
    spec, outcome = ledger.spec(run), (ledger.result(run) or {}).get("outcome", "no result yet")
    fix = "train it to its end first, or name start.step"
    refuse(outcome != "finished", f"the run has {outcome}", fix, key="RUN", value=run)
    is_here = Path(runs).resolve() == ledger.root.resolve()
    start = {"run": run} if is_here else {"folder": str(folder)}
    return Pretrained(folder, start, spec, store.tokenizer(spec["data"], ledger.root))
