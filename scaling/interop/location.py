"""The model that a word of a command names: its folder, and what that states of it. torch is not needed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.data import store
from scaling.ledger import Ledger

if TYPE_CHECKING:
    from scaling.data.codec import Codec

CONFIG, SPEC = "config.yaml", "spec.json"
FORMS = (SPEC, CONFIG, "config.json")  # of a run, of a folder of ours, of one of transformers
SHOWN = 40  # names in an error
_FAMILIES = {"Encoder": "encoder", "Decoder": "decoder", "BiLM": "decoder", "EncoderDecoder": "encoder_decoder"}


def locate(name: str | os.PathLike[str], runs: str | Path = "runs") -> Path:
    """The folder that is named, or that of a run of the ledger at `runs`: by the beginning of its id, or by the
    beginning of a study's name and a row of it, `STUDY:ROW`. The ledger of a run's folder is two folders above it.
    """
    word, folder = os.fspath(name), Path(os.path.expanduser(name))
    if not folder.is_dir():
        ledger = Ledger.open(runs)
        folder = ledger.folder(_row_of(ledger, word) if ":" in word else ledger.find(word)).absolute()
    elif (folder / SPEC).is_file():
        folder = folder.resolve()
    what, fix = f"it holds neither {CONFIG} nor {SPEC}", "name a run, or import it first"
    refuse(not any((folder / form).is_file() for form in FORMS), what, fix, file=folder)
    return folder


def _row_of(ledger: Ledger, name: str) -> str:
    """The run of `STUDY:ROW`: the one study whose name begins so (a table's ends in a digest of its rows), and its row
    by all of its name, or by words of it that no other run has.
    """
    study, _, row = name.partition(":")
    names = ledger.studies()
    studies = [study] if study in names else [each for each in names if study and each.startswith(study)]
    what = f"{len(studies)} studies begin so: {listed(studies)}"
    refuse(len(studies) > 1, what, "write more of the name", key="RUN", value=study)
    study = studies[0] if studies else study
    planned = {str(entry.get("name")): entry["run"] for entry in ledger.plan(study)["runs"]}
    meant = [row] if row in planned else [name for name in planned if set(row.split()) <= set(name.split())]
    if not meant:  # a study may have thousands of names to search for near ones
        raise ScalingError(f"the study {study} has no such run", key="RUN", value=row, fix=nearest(row, planned))
    what = f"{len(meant)} runs of the study {study} are meant: {listed([*map(repr, meant)])}"
    refuse(len(meant) > 1, what, "name one of them", key="RUN", value=row)
    return planned[meant[0]]


def listed(names: Sequence[str]) -> str:
    """The first of many names, in an error."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


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
