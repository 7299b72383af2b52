"""ELECTRA's generators (Clark et al. 2020)."""

from __future__ import annotations

from scaling.interop.formats.bert import BODY, SIZE, MaskedBERT
from scaling.interop.template import ACTIVATIONS, Format, blank, table, tied
from scaling.schema import overlay

_WIDTH = blank("embedding_size", default=128)


class ELECTRA(Format):
    """ELECTRA's generator: BERT whose embeddings are of another width than the stream. (Clark et al. 2020)"""

    architecture = "ElectraForMaskedLM"
    config = {"model_type": "electra", "is_decoder": False, "add_cross_attention": False}
    model = overlay(
        MaskedBERT.model,
        {
            "embedding": {**MaskedBERT.model["embedding"], "kind": "Projected", "width": _WIDTH},
            "head": {"activation": ACTIVATIONS["gelu"], "width": _WIDTH},
            "tie": tied("encoder"),
        },
    )
    size = {**SIZE, "length": blank("max_position_embeddings", default=512)}
    names = table(
        BODY
        + """
        encoder.embedding.projection.{weight,bias}           electra.embeddings_project.{weight,bias}
        head.dense.{weight,bias}                             generator_predictions.dense.{weight,bias}
        head.norm.{gain,bias}                                generator_predictions.LayerNorm.{weight,bias}
        head.{weight,bias}                                   generator_lm_head.{weight,bias}
        """,
        name="electra",
        block="encoder.stack.blocks.*.branches",
        layer="electra.encoder.layer.*",
    )
    prefix = "electra."
    copies = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    derived = ("electra.embeddings.position_ids",)


class PlainELECTRA(ELECTRA):
    """ELECTRA's generator where embeddings are as wide as the stream. (Clark et al. 2020)"""

    model = overlay(
        ELECTRA.model,
        {"embedding": MaskedBERT.model["embedding"], "head": {**ELECTRA.model["head"], "width": None}},
    )
    size = {**ELECTRA.size, "width": blank("hidden_size", "embedding_size")}
