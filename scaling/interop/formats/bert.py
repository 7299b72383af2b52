"""BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020), pretrained and with task heads."""

from __future__ import annotations

from typing import Any

from scaling.interop.formats.heads import OUT, with_heads
from scaling.interop.template import ACTIVATIONS, Format, blank, table

_ACTIVATION = blank("hidden_act", default="gelu", values=ACTIVATIONS)
_NORM = {"kind": "LayerNorm", "eps": blank("layer_norm_eps", default=1e-12)}
_DROPOUT = blank("hidden_dropout_prob", default=0.1)

SIZE = {
    "width": blank("hidden_size"),
    "layers": blank("num_hidden_layers"),
    "heads": blank("num_attention_heads"),
    "hidden": blank("intermediate_size"),
    "vocabulary": blank("vocab_size"),
}

_CONFIG = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}

BODY = """
    encoder.embedding.table                              <name>.embeddings.word_embeddings.weight
    encoder.embedding.segments                           <name>.embeddings.token_type_embeddings.weight
    encoder.embedding.norm.{gain,bias}                   <name>.embeddings.LayerNorm.{weight,bias}
    encoder.stack.positions.0.table                      <name>.embeddings.position_embeddings.weight
    <block>.mixer.piece.{query,key,value}.weight         <layer>.attention.self.{query,key,value}.weight
    <block>.mixer.piece.{query,key,value}.bias           <layer>.attention.self.{query,key,value}.bias
    <block>.mixer.piece.out.{weight,bias}                <layer>.attention.output.dense.{weight,bias}
    <block>.mixer.norm.{gain,bias}                       <layer>.attention.output.LayerNorm.{weight,bias}
    <block>.channel.piece.hidden.{weight,bias}           <layer>.intermediate.dense.{weight,bias}
    <block>.channel.piece.out.{weight,bias}              <layer>.output.dense.{weight,bias}
    <block>.channel.norm.{gain,bias}                     <layer>.output.LayerNorm.{weight,bias}
"""


# A head of tasks drops as the stack does where its own fraction is not written.
_HEAD_DROPOUT = blank("classifier_dropout", "hidden_dropout_prob", default=0.1)
_MASKED = {"kind": "Transform", "activation": _ACTIVATION, "norm": _NORM, "bias": True}
_POOL = {"activation": "Tanh", "dropout": _HEAD_DROPOUT}


def _model(position: Any, sentence: Any) -> dict[str, Any]:
    return {
        "kind": "Encoder",
        "embedding": {
            "kind": "Token",
            "segments": blank("type_vocab_size", default=2, least=1),
            "norm": _NORM,
            "dropout": _DROPOUT,
        },
        "position": position,
        "pattern": "Bidirectional",
        "block": {
            "kind": "Serial",
            "branches": ["mixer", "channel"],
            "norm": _NORM,
            "residual": {"kind": "Post", "dropout": _DROPOUT},
            "mixer": {
                "kind": "Attention",
                "bias": True,
                "dropout": blank("attention_probs_dropout_prob", default=0.1),
            },
            "channel": {"kind": "Dense", "activation": _ACTIVATION, "bias": True},
        },
        "stack": {"kind": "Sequential", "norm": "NoNorm"},
        "head": _MASKED,
        "sentence": sentence,
        "tie": ["encoder", "head"],
    }


_PLACES = {"block": "encoder.stack.blocks.*.branches"}
_IN_BERT = {"name": "bert", "layer": "bert.encoder.layer.*", **_PLACES}
_IN_ROBERTA = {"name": "roberta", "layer": "roberta.encoder.layer.*", **_PLACES}


class BERT(Format):
    """BERT: post-norm, segments, a head for masked words and one for the next sentence. (Devlin et al. 2018)"""

    architecture = "BertForPreTraining"
    config = {"model_type": "bert", **_CONFIG}
    model = _model("Learned", {"kind": "NextSentence", "activation": "Tanh"})
    size = {**SIZE, "length": blank("max_position_embeddings")}
    names = table(
        BODY
        + """
        head.dense.{weight,bias}                             cls.predictions.transform.dense.{weight,bias}
        head.norm.{gain,bias}                                cls.predictions.transform.LayerNorm.{weight,bias}
        head.bias                                            cls.predictions.bias
        sentence.pool.{weight,bias}                          bert.pooler.dense.{weight,bias}
        sentence.out.{weight,bias}                           cls.seq_relationship.{weight,bias}
        """,
        **_IN_BERT,
    )
    prefix = "bert."
    copies = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    derived = ("bert.embeddings.position_ids",)


class MaskedBERT(BERT):
    """BERT without its next-sentence head. (Devlin et al. 2018)"""

    architecture = "BertForMaskedLM"
    model = _model("Learned", None)


ClassifyingBERT, TaggingBERT, AnsweringBERT = with_heads(
    BERT, BODY, _IN_BERT, _POOL, "head.pool.{weight,bias}   bert.pooler.dense.{weight,bias}\n" + OUT, _HEAD_DROPOUT
)


class RoBERTa(Format):
    """RoBERTa: BERT without next sentence, positions counted from 2. (Liu et al. 2019)"""

    architecture = "RobertaForMaskedLM"
    # Its positions are counted from one after the padding's.
    config = {"model_type": "roberta", "pad_token_id": 1, **_CONFIG}
    model = _model({"kind": "Learned", "offset": 2}, None)
    size = {**SIZE, "length": blank("max_position_embeddings", less=2)}
    names = table(
        BODY
        + """
        head.dense.{weight,bias}                             lm_head.dense.{weight,bias}
        head.norm.{gain,bias}                                lm_head.layer_norm.{weight,bias}
        head.bias                                            lm_head.bias
        """,
        **_IN_ROBERTA,
    )
    prefix = "roberta."
    copies = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    derived = ("roberta.embeddings.position_ids",)


# transformers drops before the first layer of the head of a class too; ours drops behind it alone.
_POOLED = """
    head.pool.{weight,bias}                              classifier.dense.{weight,bias}
    head.out.{weight,bias}                               classifier.out_proj.{weight,bias}
"""
ClassifyingRoBERTa, TaggingRoBERTa, AnsweringRoBERTa = with_heads(
    RoBERTa, BODY, _IN_ROBERTA, _POOL, _POOLED, _HEAD_DROPOUT
)


class XLMR(RoBERTa):
    """XLM-R: RoBERTa over a hundred languages. (Conneau et al. 2020)"""

    architecture = "XLMRobertaForMaskedLM"
    config = {**RoBERTa.config, "model_type": "xlm-roberta"}


ClassifyingXLMR, TaggingXLMR, AnsweringXLMR = with_heads(XLMR, BODY, _IN_ROBERTA, _POOL, _POOLED, _HEAD_DROPOUT)
