"""Looking inside a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.runs import RUNS, Run
from scaling.errors import ScalingError

if TYPE_CHECKING:
    import pandas

    from scaling.inside.look import Look
    from scaling.inside.maps import Map

FIGURES = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Attention:
    """What the heads of a run weigh over one text. `maps` has a map for each mixer, in the order in which they run:
    its `weights` are an array [heads, queries, keys], and `layer`, `slot` (mixer or cross), `tower` and `kind` say
    which it is. A mixer without a softmax has one of the kind `gradient`, the size of its derivatives.
    """

    run: str
    text: str
    seen: Look = field(repr=False)

    @property
    def maps(self) -> Sequence[Map]:
        return self.seen.maps

    @property
    def tokens(self) -> dict[str, list[str]]:
        """The tokens that each tower read."""
        return {tower: list(tokens) for tower, tokens in self.seen.tokens.items()}

    @property
    def heads(self) -> pandas.DataFrame:
        """A row a head: entropy in nats, mean distance, the weight of the previous token, the distance with the highest
        weight and that weight, and induction; of a cross-attention coverage and copying
        (`scaling.inside.heads.HeadScores`).
        """
        import pandas

        return pandas.DataFrame([asdict(head) for head in self.seen.heads])

    @property
    def alignment(self) -> pandas.DataFrame:
        """What each token that an encoder-decoder wrote was written by: a row a written token, a column a token of the
        source, the mean weights of all cross-attentions.
        """
        import pandas

        from scaling.inside.heads import alignment

        read, source = (self.tokens.get(tower, []) for tower in ("decoder", "encoder"))
        return pandas.DataFrame(alignment(self.seen.maps, len(read), len(source)), read[1:], source)

    def save(self, path: str | Path, head: str | None = None) -> None:
        """Write a page (.html), or a figure (.png, .pdf, .svg) of all heads or of one, as `3.5`: layer, head."""
        from scaling import atomic

        path = Path(path)
        if path.suffix in FIGURES:
            from scaling.inside.figure import save

            return save(self.seen, path, head)
        if path.suffix != ".html":
            endings = ", ".join((".html", *FIGURES))
            raise ScalingError("there is no such kind of file", key="--to", value=str(path), fix=f"take {endings}")
        from scaling.inside.page import page

        atomic.write(path, page(self.seen, f"Attention of {self.run}", head))

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling look --json` (docs/json.md)."""
        names = dict(zip(map(id, self.seen.maps), self.seen.names))
        return {
            "run": self.run,
            "text": self.text,
            "tokens": self.tokens,
            "layers": [
                {
                    "name": names[id(each)],
                    "tower": each.tower,
                    "layer": each.layer,
                    "slot": each.slot,
                    "kind": each.kind,
                }
                for each in self.seen.maps
            ],
            "heads": [asdict(head) for head in self.seen.heads],
        }


def look(
    run: str | Path | Run, text: str, *, target: str | None = None, runs: str | Path = RUNS, device: str | None = None
) -> Attention:
    """The attention maps of a run (the beginning of its id, a folder, or a `Run`) over a text.

    An encoder reads `[MASK]` in the text as its mask. An encoder-decoder reads the text and writes `target`, by default
    what it would write. The maps are made by a second path that keeps all weights; training is as fast as without it.

        scaling.look("3f2a", "the law of the land").save("look.html")
    """
    from scaling.api.model import load
    from scaling.inside.look import look as seen

    model = load(run, runs=runs, device=device)
    tokens = model.framed(text, target)
    name = model.saved.place.get("run") or model.saved.place.get("folder") or str(run)
    return Attention(str(name), text, seen(model.module, model.ids, model.tokenizer, tokens))  # type: ignore[arg-type]
