"""The loss around trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.look import FIGURES
from scaling.api.runs import RUNS, Run
from scaling.errors import ScalingError

if TYPE_CHECKING:
    import numpy as np

    from scaling.training.finetune import Pretrained


@dataclass(frozen=True)
class Landscape:
    """The held-out loss of runs on a plane around their weights, spanned by two random directions whose filters are as
    large as the weights'. `losses` has an array [side, side] for each run, in nats per target, the run in the middle.
    """

    reach: float
    losses: dict[str, np.ndarray] = field(repr=False)

    @property
    def rises(self) -> dict[str, dict[str, float]]:
        """Of each run the `loss` in the middle, how much it rises on average on the border of the plane (`border`), and
        the `roughness`: the root mean square of its second differences, over the range.
        """
        return {name: _rises(loss) for name, loss in self.losses.items()}

    def save(self, path: str | Path) -> None:
        """Draw the contours of all runs on one scale: .png, .pdf or .svg."""
        from scaling.inside.landscape import save

        path = Path(path)
        _check_ending(path)
        save(self.losses, self.reach, path)

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling landscape --json` (docs/json.md)."""
        runs = [{"run": name, **self.rises[name], "losses": loss.tolist()} for name, loss in self.losses.items()]
        return {"reach": self.reach, "runs": runs}


def landscape(
    run: str | Path | Run,
    *others: str | Path | Run,
    side: int = 21,
    reach: float = 1.0,
    seed: int = 0,
    windows: int = 64,
    runs: str | Path = RUNS,
    device: str | None = None,
) -> Landscape:
    """The loss of runs around their weights on `windows` held-out windows of the data that each was trained on.
    (Li et al. 2018)

        scaling.landscape("3f2a", "71c0").save("landscape.png")
    """
    from scaling.training.finetune import pretrained

    if windows < 1:
        raise ScalingError("expected a positive number", key="--windows", value=windows)
    if side < 1 or side % 2 == 0:
        raise ScalingError("expected an odd number, so that the model is in the middle", key="--side", value=side)
    if not reach > 0:
        raise ScalingError("expected a positive number", key="--reach", value=reach)
    sources = [pretrained(str(one.path) if isinstance(one, Run) else str(one), runs) for one in (run, *others)]
    for source in sources:
        if "objective" not in source.sections:
            what = "what it was trained on is not known here"
            raise ScalingError(what, key="RUN", value=source.folder.name, fix="name a run of the ledger")

    from scaling.api.model import Model
    from scaling.inside.landscape import landscape as around
    from scaling.interop.run import read

    losses = {}
    for source in sources:
        model = Model(read(source.folder, runs), device).module
        batches = _held_out(source, windows, runs)
        losses[source.folder.name] = around(model, batches, side, reach, seed)  # type: ignore[arg-type]
    return Landscape(reach, losses)


def _held_out(source: Pretrained, windows: int, runs: str | Path) -> Sequence[Any]:
    """Batches of the run's own validation split."""
    from scaling.data.batches import evaluation
    from scaling.data.source import Vocabulary
    from scaling.data.store import root
    from scaling.schema import build, kinds

    data = build("data", source.data)
    train, held_out = (data.open(split, root(runs)) for split in ("train", "validation"))
    family = kinds("model")[source.model["kind"]].family  # type: ignore[attr-defined]
    line = source.sections["objective"]
    objective = build("objective", line, Vocabulary.of(train), source.size["length"], family)
    batches, count = evaluation(held_out, objective, min(16, windows), windows)
    return [batches.batch(step) for step in range(count)]


def _rises(loss: Any) -> dict[str, float]:
    import numpy as np

    middle, last = len(loss) // 2, len(loss) - 1
    edge = np.zeros(loss.shape, bool)
    edge[[0, last]] = edge[:, [0, last]] = True
    bends = np.concatenate([np.diff(loss, 2, axis=axis).ravel() for axis in (0, 1)]) if last > 1 else np.zeros(1)
    span = max(float(np.ptp(loss)), 1e-12)
    centre = float(loss[middle, middle])
    rise = float(loss[edge].mean()) - centre
    return {"loss": centre, "border": rise, "roughness": float(np.sqrt((bends**2).mean())) / span}


def _check_ending(path: Path) -> None:
    if path.suffix not in FIGURES:
        endings = ", ".join(FIGURES)
        raise ScalingError("there is no such kind of file", key="--to", value=str(path), fix=f"take {endings}")
