"""The architectures of transformers that are read and written, a class each; where several fit a model, the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scaling.base.errors import refuse
from scaling.config.schema import overlay
from scaling.interop.template import ACTIVATIONS, Blank, Format, Names, Segments, switch, table, tied


def _sizes(**keys: str | Blank | Mapping[str, Any]) -> dict[str, Any]:
    """The section `size` by the keys of config.json; of several words the first that is there."""
    return {ours: Blank(*theirs.split()) if isinstance(theirs, str) else theirs for ours, theirs in keys.items()}


def _stack(
    kind: str, norm: Any, residual: Any, mixer: Any, channel: Any, blocks: Any = "Serial", **other: Any
) -> dict[str, Any]:
    """The section `model` of a stack of equal blocks of attention and a feed-forward layer."""
    block = {"kind": blocks, "branches": ["mixer", "channel"], "norm": norm, "residual": residual}
    pieces = {"mixer": {"kind": "Attention", **mixer}, "channel": {"kind": "Dense", **channel}}
    pattern = "Causal" if kind == "Decoder" else "Bidirectional"
    stack = {"kind": "Sequential", "norm": norm}
    section = {"kind": kind, "embedding": "Token", "pattern": pattern, "block": {**block, **pieces}, "stack": stack}
    return {**section, "head": "Linear", **other}


def _activation(key: str, default: str) -> Any:
    return Blank(key, default=default, values=ACTIVATIONS)


def _dropout(*keys: str, default: float = 0.1) -> Any:
    return Blank(*keys, default=default)


def _norm(kind: str, key: str, default: float) -> dict[str, Any]:
    return {"kind": kind, "eps": Blank(key, default=default)}


_LENGTH = "max_position_embeddings"
_SIZE = _sizes(
    width="hidden_size",
    layers="num_hidden_layers",
    heads="num_attention_heads",
    vocabulary="vocab_size",
    length=_LENGTH,
    hidden="intermediate_size",
)
_NO_LAST_NORM = {"kind": "Sequential", "norm": "NoNorm"}

# GPT-1 and GPT-2

_GPT_NORM = _norm("LayerNorm", "layer_norm_epsilon", 1e-5)
_GPT_NAMES = """
    decoder.embedding.table                           transformer.<tokens>.weight
    decoder.stack.positions.0.table                   transformer.<positions>.weight
    <decoder>.{mixer,channel}.norm.{gain,bias}        <layer>.{ln_1,ln_2}.{weight,bias}
    <decoder>.mixer.piece.{query+key+value}.<both>    <layer>.attn.c_attn.<both>            transposed
    <decoder>.mixer.piece.out.<both>                  <layer>.attn.c_proj.<both>            transposed
    <decoder>.channel.piece.{hidden,out}.<both>       <layer>.mlp.{c_fc,c_proj}.<both>      transposed
    decoder.stack.norm.{gain,bias}                    transformer.ln_f.{weight,bias}
    head.weight                                       lm_head.weight
"""


def _gpt(activation: Any, residual: str, last: Any) -> dict[str, Any]:
    return _stack(
        "Decoder",
        _GPT_NORM,
        {"kind": residual, "dropout": _dropout("resid_pdrop")},
        {"bias": True, "dropout": _dropout("attn_pdrop")},
        {"activation": activation, "bias": True},
        embedding={"kind": "Token", "dropout": _dropout("embd_pdrop")},
        position="Learned",
        stack={"kind": "Sequential", "norm": last},
        tie=["decoder", "head"],
    )


class GPT1(Format):
    """GPT-1: GPT-2 with norms behind the branches. (Radford et al. 2018)"""

    architecture = "OpenAIGPTLMHeadModel"
    config = {"model_type": "openai-gpt", "tie_word_embeddings": True}
    # Its "gelu" has always been the tanh form.
    model = _gpt(
        Blank("afn", default="gelu", values={"gelu": ACTIVATIONS["gelu_new"], "relu": ACTIVATIONS["relu"]}),
        "Post",
        "NoNorm",
    )
    size = _sizes(width="n_embd", layers="n_layer", heads="n_head", vocabulary="vocab_size", length="n_positions")
    names = table(_GPT_NAMES, tokens="tokens_embed", positions="positions_embed", layer="transformer.h.*")


class GPT2(Format):
    """GPT-2: pre-norm, learned positions, one table. (Radford et al. 2019)"""

    architecture = "GPT2LMHeadModel"
    config = {
        "model_type": "gpt2",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    model = _gpt(_activation("activation_function", "gelu_new"), "Pre", _GPT_NORM)
    size = {**GPT1.size, "hidden": Blank("n_inner", default=None)}
    names = table(_GPT_NAMES, tokens="wte", positions="wpe", layer="transformer.h.*")


class ClassifyingGPT2(GPT2):
    """GPT-2 with a class of the text, read at its last token. (Radford et al. 2018)

    Its head has no bias: ours goes into the bias of the last norm, β + W⁺b, which gives the same logits.
    transformers drops nothing before the head.
    """

    architecture = "GPT2ForSequenceClassification"
    model = {
        **GPT2.model,
        "head": {"kind": "Sequence", "classes": Names("id2label"), "dropout": _dropout("summary_first_dropout")},
        "tie": [],
    }
    names = (*GPT2.names, *table("head.out.weight   score.weight"))
    absent = ("head.out.bias",)

    @classmethod
    def folded(cls, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        weight, bias = tensors["head.out.weight"].double(), tensors["head.out.bias"].double()
        last = "decoder.stack.norm.bias"
        shift = torch.linalg.pinv(weight) @ bias
        what = "transformers' head has no bias, and with more classes than width no norm has the effect of this one"
        refuse(not torch.allclose(weight @ shift, bias, atol=1e-4), what, key="model.head.classes", value=len(bias))
        return {**tensors, last: (tensors[last].double() + shift).to(tensors[last].dtype)}


# OPT and BLOOM

_OPT_BIAS = switch("enable_bias", default=True)
_OPT_AFFINE = switch("layer_norm_elementwise_affine", default=True)


class OPT(Format):
    """OPT: pre-norm, ReLU, positions counted from 2, one table. (Zhang et al. 2022) Galactica is OPT with GeLU and
    without biases. (Taylor et al. 2022)

    But for the size of 350M, which is post-norm and has a narrower table than stream.
    """

    architecture = "OPTForCausalLM"
    config = {
        "model_type": "opt",
        "do_layer_norm_before": True,
        "_remove_final_layer_norm": False,
        "layerdrop": 0.0,
    }
    model = _stack(
        "Decoder",
        {"kind": "LayerNorm", "gain": _OPT_AFFINE, "bias": _OPT_AFFINE},
        {"kind": "Pre", "dropout": _dropout("dropout")},
        {"bias": _OPT_BIAS, "dropout": _dropout("attention_dropout", default=0.0)},
        {"activation": _activation("activation_function", "relu"), "bias": _OPT_BIAS},
        position={"kind": "Learned", "offset": 2},
        tie=tied("decoder"),
    )
    size = _SIZE | _sizes(
        width="hidden_size word_embed_proj_dim", length=Blank(_LENGTH, default=2048), hidden="ffn_dim"
    )
    names = table(
        """
        decoder.embedding.table                            <top>.embed_tokens.weight
        decoder.stack.positions.0.table                    <top>.embed_positions.weight
        <decoder>.{mixer,channel}.norm.{gain,bias}         <layer>.{self_attn_layer_norm,final_layer_norm}.{weight,bias}
        <decoder>.mixer.piece.<maps>.<both>                <layer>.self_attn.{q_proj,k_proj,v_proj,out_proj}.<both>
        <decoder>.channel.piece.{hidden,out}.<both>        <layer>.{fc1,fc2}.<both>
        decoder.stack.norm.{gain,bias}                     <top>.final_layer_norm.{weight,bias}
        head.weight                                        lm_head.weight
        """,
        layer="<top>.layers.*",
        top="model.decoder",
    )


_BLOOM_NORM = _norm("LayerNorm", "layer_norm_epsilon", 1e-5)


class BLOOM(Format):
    """BLOOM: pre-norm, ALiBi, a norm on the embeddings, one table. (Le Scao et al. 2022)"""

    architecture = "BloomForCausalLM"
    config = {"model_type": "bloom", "apply_residual_connection_post_layernorm": False}
    model = _stack(
        "Decoder",
        _BLOOM_NORM,
        {"kind": "Pre", "dropout": _dropout("hidden_dropout", default=0.0)},
        {"bias": True, "dropout": _dropout("attention_dropout", default=0.0)},
        {"activation": ACTIVATIONS["gelu_new"], "bias": True},
        embedding={"kind": "Token", "norm": _BLOOM_NORM},
        position="ALiBi",
        tie=tied("decoder"),
    )
    size = _sizes(
        width="hidden_size n_embed",
        layers="n_layer num_hidden_layers",
        heads="n_head num_attention_heads",
        vocabulary="vocab_size",
        length=Blank("seq_length", default=2048),
    )
    names = table(
        """
        decoder.embedding.table                            transformer.word_embeddings.weight
        decoder.embedding.norm.{gain,bias}                 transformer.word_embeddings_layernorm.{weight,bias}
        <decoder>.{mixer,channel}.norm.{gain,bias}         <layer>.{input,post_attention}_layernorm.{weight,bias}
        <decoder>.mixer.piece.{query+key+value}.<both>     <layer>.self_attention.query_key_value.<both>  by_head
        <decoder>.mixer.piece.out.<both>                   <layer>.self_attention.dense.<both>
        <decoder>.channel.piece.{hidden,out}.<both>        <layer>.mlp.{dense_h_to_4h,dense_4h_to_h}.<both>
        decoder.stack.norm.{gain,bias}                     transformer.ln_f.{weight,bias}
        head.weight                                        lm_head.weight
        """,
        layer="transformer.h.*",
    )


# Encoders with the heads of tasks

_OUT = "head.out.<both>   classifier.<both>"


def _with_heads(body: type[Format], pool: Mapping[str, Any], pooled: str, dropout: Any) -> list[type[Format]]:
    """The formats of a pretrained encoder with a head for a class of the text, one for tags, and one for a span. `pool`
    is what the head of a class does before its classes, and `pooled` names its tensors. (Devlin et al. 2018, sections 4
    and 5)
    """
    encoder = [name for name in body.names if name.ours[0].startswith("encoder.")]
    title, stem = str(body.__doc__).partition(":")[0], body.architecture.partition("For")[0]

    def form(prefix: str, answer: str, task: str, head: dict[str, Any], tensors: str) -> type[Format]:
        attributes = {
            "__doc__": f"{title} with {answer}. (Devlin et al. 2018)",
            "__module__": body.__module__,
            "architecture": f"{stem}For{task}",
            "model": {**body.model, "head": head, "sentence": None, "tie": []},
            "names": (*encoder, *table(tensors)),
            "copies": {},
        }
        return type(f"{prefix}{body.__name__}", (body,), attributes)

    classes, span = {"classes": Names("id2label")}, "head.out.<both>   qa_outputs.<both>"
    sequence, tokens = {"kind": "Sequence", **classes, **pool}, {"kind": "Tokens", **classes, "dropout": dropout}
    return [
        form("Classifying", "a class of the text", "SequenceClassification", sequence, pooled),
        form("Tagging", "a class of each token", "TokenClassification", tokens, _OUT),
        form("Answering", "a span of the text", "QuestionAnswering", {"kind": "Span"}, span),
    ]


# BERT, RoBERTa, XLM-R

_BERT_ACTIVATION = _activation("hidden_act", "gelu")
_BERT_NORM = _norm("LayerNorm", "layer_norm_eps", 1e-12)
_BERT_DROPOUT = _dropout("hidden_dropout_prob")
# A head of tasks drops as the stack does where its own fraction is not written.
_HEAD_DROPOUT = _dropout("classifier_dropout", "hidden_dropout_prob")
_POOL = {"activation": "Tanh", "dropout": _HEAD_DROPOUT}
_BERT_CONFIG = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
}
_BERT_EMBEDDINGS = """
    encoder.embedding.table                            <top>.embeddings.word_embeddings.weight
    encoder.embedding.segments                         <top>.embeddings.token_type_embeddings.weight
    encoder.embedding.norm.{gain,bias}                 <top>.embeddings.LayerNorm.{weight,bias}
    encoder.stack.positions.0.table                    <top>.embeddings.position_embeddings.weight
"""
_BERT_BODY = f"""{_BERT_EMBEDDINGS}
    <encoder>.mixer.piece.{{query,key,value}}.<both>   <layer>.attention.self.{{query,key,value}}.<both>
    <encoder>.mixer.piece.out.<both>                   <layer>.attention.output.dense.<both>
    <encoder>.channel.piece.{{hidden,out}}.<both>      <layer>.{{intermediate,output}}.dense.<both>
    <encoder>.{{mixer,channel}}.norm.{{gain,bias}}     <layer>.{{attention.output,output}}.LayerNorm.{{weight,bias}}
    head.dense.<both>                                  <dense>.<both>
    head.norm.{{gain,bias}}                            <norm>.{{weight,bias}}
"""


class BERT(Format):
    """BERT: post-norm, segments, a head for masked words and one for the next sentence. (Devlin et al. 2018)"""

    architecture = "BertForPreTraining"
    config = {"model_type": "bert", **_BERT_CONFIG}
    model = _stack(
        "Encoder",
        _BERT_NORM,
        {"kind": "Post", "dropout": _BERT_DROPOUT},
        {"bias": True, "dropout": _dropout("attention_probs_dropout_prob")},
        {"activation": _BERT_ACTIVATION, "bias": True},
        embedding={
            "kind": "Token",
            "segments": Segments("type_vocab_size", default=2),
            "norm": _BERT_NORM,
            "dropout": _BERT_DROPOUT,
        },
        position="Learned",
        stack=_NO_LAST_NORM,
        head={"kind": "Transform", "activation": _BERT_ACTIVATION, "norm": _BERT_NORM, "bias": True},
        sentence={"kind": "NextSentence", "activation": "Tanh"},
        tie=["encoder", "head"],
    )
    size = _SIZE
    names = table(
        _BERT_BODY
        + """
        head.<both>                                        cls.predictions.{decoder.weight,bias}
        sentence.pool.<both>                               bert.pooler.dense.<both>
        sentence.out.<both>                                cls.seq_relationship.<both>
        """,
        dense="cls.predictions.transform.dense",
        norm="cls.predictions.transform.LayerNorm",
        layer="<top>.encoder.layer.*",
        top="bert",
    )
    copies = {"cls.predictions.decoder.bias": "cls.predictions.bias"}


class MaskedBERT(BERT):
    """BERT without its next-sentence head. (Devlin et al. 2018)"""

    architecture = "BertForMaskedLM"
    model = {**BERT.model, "sentence": None}


ClassifyingBERT, TaggingBERT, AnsweringBERT = _with_heads(
    BERT, _POOL, f"head.pool.<both>   bert.pooler.dense.<both>\n{_OUT}", _HEAD_DROPOUT
)


class RoBERTa(Format):
    """RoBERTa: BERT without next sentence, positions counted from 2. (Liu et al. 2019)"""

    architecture = "RobertaForMaskedLM"
    # Its positions are counted from one after the padding's, and its head has GeLU whatever the layers have.
    config = {"model_type": "roberta", "pad_token_id": 1, **_BERT_CONFIG}
    model = {
        **MaskedBERT.model,
        "position": {"kind": "Learned", "offset": 2},
        "head": {**BERT.model["head"], "activation": ACTIVATIONS["gelu"]},
    }
    size = {**_SIZE, "length": Blank(_LENGTH, less=2)}
    names = table(
        f"{_BERT_BODY} head.<both>   lm_head.{{decoder.weight,bias}}",
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        layer="<top>.encoder.layer.*",
        top="roberta",
    )
    copies = {"lm_head.decoder.bias": "lm_head.bias"}


# transformers drops before the first layer of the head of a class too; ours drops behind it alone.
_ROBERTA_POOLED = "head.{pool,out}.<both>   classifier.{dense,out_proj}.<both>"
ClassifyingRoBERTa, TaggingRoBERTa, AnsweringRoBERTa = _with_heads(RoBERTa, _POOL, _ROBERTA_POOLED, _HEAD_DROPOUT)


class XLMR(RoBERTa):
    """XLM-R: RoBERTa over a hundred languages. (Conneau et al. 2020)"""

    architecture = "XLMRobertaForMaskedLM"
    config = {**RoBERTa.config, "model_type": "xlm-roberta"}


ClassifyingXLMR, TaggingXLMR, AnsweringXLMR = _with_heads(XLMR, _POOL, _ROBERTA_POOLED, _HEAD_DROPOUT)

# DistilBERT, and encoders whose embeddings may be narrower than the stream: ELECTRA's generators, ALBERT

_SHORT_SIZE = {**_SIZE, "length": Blank(_LENGTH, default=512)}
_DISTIL_ACTIVATION = _activation("activation", "gelu")
_DISTIL_NORM = {"kind": "LayerNorm", "eps": 1e-12}
_DISTIL_DROPOUT = _dropout("dropout")


class DistilBERT(Format):
    """DistilBERT: BERT without segments. (Sanh et al. 2019)

    transformers drops nothing behind its attention; ours drops behind both branches alike.
    """

    architecture = "DistilBertForMaskedLM"
    config = {"model_type": "distilbert", "sinusoidal_pos_embds": False}
    model = overlay(
        MaskedBERT.model,
        {
            "embedding": {"kind": "Token", "norm": _DISTIL_NORM, "dropout": _DISTIL_DROPOUT},
            "block": {
                "norm": _DISTIL_NORM,
                "residual": {"kind": "Post", "dropout": _DISTIL_DROPOUT},
                "mixer": {"dropout": _dropout("attention_dropout")},
                "channel": {"activation": _DISTIL_ACTIVATION},
            },
            "head": {"activation": _DISTIL_ACTIVATION, "norm": _DISTIL_NORM},
            "tie": tied("encoder"),
        },
    )
    size = _SHORT_SIZE | _sizes(width="dim", layers="n_layers", heads="n_heads", hidden="hidden_dim")
    names = table(
        f"""{_BERT_EMBEDDINGS}
        <encoder>.mixer.piece.<maps>.<both>                <layer>.attention.{{q,k,v,out}}_lin.<both>
        <encoder>.channel.piece.{{hidden,out}}.<both>      <layer>.ffn.{{lin1,lin2}}.<both>
        <encoder>.{{mixer,channel}}.norm.{{gain,bias}}     <layer>.{{sa,output}}_layer_norm.{{weight,bias}}
        head.dense.<both>                                  vocab_transform.<both>
        head.norm.{{gain,bias}}                            vocab_layer_norm.{{weight,bias}}
        head.<both>                                        vocab_projector.<both>
        """,
        layer="<top>.transformer.layer.*",
        top="distilbert",
    )


# transformers drops what the head of a span reads; ours does not.
ClassifyingDistilBERT, TaggingDistilBERT, AnsweringDistilBERT = _with_heads(
    DistilBERT,
    {"activation": "ReLU", "dropout": _dropout("seq_classif_dropout", default=0.2)},
    f"head.pool.<both>   pre_classifier.<both>\n{_OUT}",
    _DISTIL_DROPOUT,
)

_NARROW = {"width": Blank("embedding_size", default=128)}


class ELECTRA(Format):
    """ELECTRA's generator: BERT whose embeddings are of another width than the stream. (Clark et al. 2020)"""

    architecture = "ElectraForMaskedLM"
    config = {"model_type": "electra", "is_decoder": False, "add_cross_attention": False}
    model = overlay(
        MaskedBERT.model,
        {
            "embedding": {**BERT.model["embedding"], "kind": "Projected", **_NARROW},
            "head": {"activation": ACTIVATIONS["gelu"], **_NARROW},
            "tie": tied("encoder"),
        },
    )
    size = _SHORT_SIZE
    names = table(
        f"""{_BERT_BODY}
        encoder.embedding.projection.<both>                electra.embeddings_project.<both>
        head.<both>                                        generator_lm_head.<both>
        """,
        dense="generator_predictions.dense",
        norm="generator_predictions.LayerNorm",
        layer="<top>.encoder.layer.*",
        top="electra",
    )


class PlainELECTRA(ELECTRA):
    """ELECTRA's generator where embeddings are as wide as the stream. (Clark et al. 2020)"""

    model = overlay(ELECTRA.model, {"embedding": BERT.model["embedding"], "head": {"width": None}})
    size = {**ELECTRA.size, "width": Blank("hidden_size", "embedding_size")}


_ALBERT_ACTIVATION = {"activation": _activation("hidden_act", "gelu_new")}
_ALBERT_DROPOUT = {"dropout": _dropout("hidden_dropout_prob", default=0.0)}


class ALBERT(Format):
    """ALBERT: BERT of one block run again and again, with narrow embeddings. (Lan et al. 2019)

    transformers drops nothing behind its feed-forward layers; ours drops behind both branches alike. No released size
    has dropout.
    """

    architecture = "AlbertForPreTraining"
    config = {"model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1, "tie_word_embeddings": True}
    model = overlay(
        BERT.model,
        {
            "embedding": {**BERT.model["embedding"], "kind": "Projected", **_NARROW, **_ALBERT_DROPOUT},
            "block": {
                "residual": {"kind": "Post", **_ALBERT_DROPOUT},
                "mixer": {"dropout": _dropout("attention_probs_dropout_prob", default=0.0)},
                "channel": _ALBERT_ACTIVATION,
            },
            "stack": {**_NO_LAST_NORM, "distinct": 1},
            "head": {**_ALBERT_ACTIVATION, **_NARROW},
            "sentence": {"dropout": _dropout("classifier_dropout_prob")},
        },
    )
    size = _SHORT_SIZE
    names = table(
        f"""{_BERT_EMBEDDINGS}
        encoder.embedding.projection.<both>                <top>.encoder.embedding_hidden_mapping_in.<both>
        <block>.mixer.piece.<maps>.<both>                  <layer>.attention.{{query,key,value,dense}}.<both>
        <block>.mixer.norm.{{gain,bias}}                   <layer>.attention.LayerNorm.{{weight,bias}}
        <block>.channel.piece.{{hidden,out}}.<both>        <layer>.{{ffn,ffn_output}}.<both>
        <block>.channel.norm.{{gain,bias}}                 <layer>.full_layer_layer_norm.{{weight,bias}}
        head.dense.<both>                                  predictions.dense.<both>
        head.norm.{{gain,bias}}                            predictions.LayerNorm.{{weight,bias}}
        head.<both>                                        predictions.{{decoder.weight,bias}}
        sentence.pool.<both>                               <top>.pooler.<both>
        sentence.out.<both>                                sop_classifier.classifier.<both>
        """,
        block="encoder.stack.blocks.0.branches",
        layer="<top>.encoder.albert_layer_groups.0.albert_layers.0",
        top="albert",
    )
    copies = {"predictions.decoder.bias": "predictions.bias"}


class MaskedALBERT(ALBERT):
    """ALBERT without its sentence-order head. (Lan et al. 2019)"""

    architecture = "AlbertForMaskedLM"
    model = {**ALBERT.model, "sentence": None}


# Encoder-decoders: T5, BART, Marian


def _two_towers(cross: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a decoder has beside those of an encoder."""
    block = {"branches": ["mixer", "cross", "channel"], "cross": {"kind": "CrossAttention", **cross}}
    return {"encoder": {}, "decoder": {"pattern": "Causal", "block": block}}


_T5_NORM = _norm("RMSNorm", "layer_norm_epsilon", 1e-6)
_T5_DROPOUT = {"dropout": _dropout("dropout_rate")}
_T5_ATTENTION = {"scale": "none", **_T5_DROPOUT}
_T5_NAMES = """
    encoder.embedding.table                            shared.weight
    <tower>.stack.positions.0.table                    <tower>.<first>.relative_attention_bias.weight
    <tower>.<block>.mixer.norm.gain                    <tower>.block.*.layer.0.layer_norm.weight
    <tower>.<block>.mixer.piece.<maps>.weight          <tower>.block.*.layer.0.SelfAttention.{q,k,v,o}.weight
    decoder.<block>.cross.norm.gain                    decoder.block.*.layer.1.layer_norm.weight
    decoder.<block>.cross.piece.<maps>.weight          decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}.weight
    <tower>.<block>.channel.norm.gain                  <last>.layer_norm.weight
    <tower>.<block>.channel.piece.<ours>.weight        <last>.DenseReluDense.<theirs>.weight
    <tower>.stack.norm.gain                            <tower>.final_layer_norm.weight
    head.weight                                        lm_head.weight
"""
_T5_PARTS = {
    "tower": "{encoder,decoder}",
    "block": "stack.blocks.*.branches",
    "first": "block.0.layer.0.SelfAttention",
    "last": "{encoder.block.*.layer.1,decoder.block.*.layer.2}",
}


class T5(Format):
    """T5 v1.0: pre-norm, relative bias, one table. (Raffel et al. 2019)"""

    architecture = "T5ForConditionalGeneration"
    config = {"model_type": "t5", "feed_forward_proj": "relu", "is_encoder_decoder": True}
    model = _stack(
        "EncoderDecoder",
        _T5_NORM,
        {"kind": "Pre", **_T5_DROPOUT},
        _T5_ATTENTION,
        {"activation": "ReLU", "bias": False, **_T5_DROPOUT},
        embedding={"kind": "Token", **_T5_DROPOUT},
        position={
            "kind": "RelativeBias",
            "buckets": Blank("relative_attention_num_buckets", default=32),
            "distance": Blank("relative_attention_max_distance", default=128),
        },
        stack={"kind": "Sequential", "norm": _T5_NORM, **_T5_DROPOUT},
        **_two_towers(_T5_ATTENTION),
        head={
            "kind": "Linear",
            # The first key is the newer one; the second also stated whether the tables were tied.
            "scale": Blank(
                "scale_decoder_outputs",
                "tie_word_embeddings",
                default=True,
                values={True: "inverse_sqrt_width", False: "none"},
            ),
        },
        tie=["encoder", "decoder", "head"],
    )
    size = _sizes(
        width="d_model",
        heads="num_heads",
        head_width="d_kv",
        hidden="d_ff",
        vocabulary="vocab_size",
        length=Blank("n_positions", default=512),
        encoder=_sizes(layers="num_layers"),
        decoder=_sizes(layers="num_decoder_layers num_layers"),
    )
    names = table(_T5_NAMES, **_T5_PARTS, ours="{hidden,out}", theirs="{wi,wo}")
    # A table that is not in the file is the shared one: releases of transformers differ in what they leave out.
    copies = dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight")
    omitted = ("lm_head.weight",)


class T5v1_1(T5):
    """T5 v1.1: gated feed-forward layers, an output table of its own. (Shazeer 2020)"""

    config = {**T5.config, "feed_forward_proj": "gated-gelu"}
    model = overlay(
        T5.model,
        {
            "block": {
                "channel": {"kind": "Gated", "activation": ACTIVATIONS["gelu_new"], "bias": False, **_T5_DROPOUT}
            },
            "tie": ["encoder", "decoder"],
        },
    )
    names = table(_T5_NAMES, **_T5_PARTS, ours="{gate,hidden,out}", theirs="{wi_0,wi_1,wo}")


_BART_DROPOUT = _dropout("dropout")
_BART_ATTENTION = {"bias": True, "dropout": _dropout("attention_dropout", default=0.0)}
_BART_CONFIG = {
    "normalize_before": False,
    "add_final_layer_norm": False,
    "is_encoder_decoder": True,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "tie_word_embeddings": True,
}


class BART(Format):
    """BART: post-norm, learned positions, one table. (Lewis et al. 2019)"""

    architecture = "BartForConditionalGeneration"
    # Releases before 2021 could leave these out or turn them round.
    config = {"model_type": "bart", "normalize_embedding": True, "static_position_embeddings": False, **_BART_CONFIG}
    model = _stack(
        "EncoderDecoder",
        "LayerNorm",
        {"kind": "Post", "dropout": _BART_DROPOUT},
        _BART_ATTENTION,
        {
            "activation": _activation("activation_function", "gelu"),
            "bias": True,
            "dropout": _dropout("activation_dropout", default=0.0),
        },
        embedding={
            "kind": "Token",
            "scale": Blank("scale_embedding", default=False, values={False: "none", True: "sqrt_width"}),
            "norm": "LayerNorm",
            "dropout": _BART_DROPOUT,
        },
        position={"kind": "Learned", "offset": 2},
        stack=_NO_LAST_NORM,
        **_two_towers(_BART_ATTENTION),
        tie=["encoder", "decoder", "head"],
    )
    size = _sizes(width="d_model", vocabulary="vocab_size", length=Blank(_LENGTH, default=1024)) | {
        tower: _sizes(layers=f"{tower}_layers", heads=f"{tower}_attention_heads", hidden=f"{tower}_ffn_dim")
        for tower in ("encoder", "decoder")
    }
    names = table(
        """
        encoder.embedding.table                            model.shared.weight
        <tower>.mixer.piece.<maps>.<both>                  <layer>.self_attn.<qkvo>.<both>
        <tower>.mixer.norm.{gain,bias}                     <layer>.self_attn_layer_norm.{weight,bias}
        <tower>.cross.piece.<maps>.<both>                  <layer>.encoder_attn.<qkvo>.<both>
        <tower>.cross.norm.{gain,bias}                     <layer>.encoder_attn_layer_norm.{weight,bias}
        <tower>.channel.piece.{hidden,out}.<both>          <layer>.{fc1,fc2}.<both>
        <tower>.channel.norm.{gain,bias}                   <layer>.final_layer_norm.{weight,bias}
        {encoder,decoder}.embedding.norm.{gain,bias}       model.{encoder,decoder}.layernorm_embedding.{weight,bias}
        {encoder,decoder}.stack.positions.0.table          model.{encoder,decoder}.embed_positions.weight
        """,
        tower="{encoder,decoder}.stack.blocks.*.branches",
        layer="model.{encoder,decoder}.layers.*",
        qkvo="{q_proj,k_proj,v_proj,out_proj}",
    )
    copies = {
        "lm_head.weight": "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "final_logits_bias": None,
    }


class Marian(BART):
    """Marian: post-norm, sinusoids, one table and a bias onto it. (Junczys-Dowmunt et al. 2018)"""

    architecture = "MarianMTModel"
    config = {
        "model_type": "marian",
        "normalize_embedding": False,
        "share_encoder_decoder_embeddings": True,
        **_BART_CONFIG,
    }
    model = overlay(
        BART.model,
        {
            "embedding": {"norm": None},
            "position": {"kind": "Sinusoidal", "layout": "halves"},
            "head": {"kind": "Linear", "bias": True},
        },
    )
    names = (*BART.names, *table("head.bias  final_logits_bias  row"))


# Llama and its relatives, and GPT-NeoX, which is Pythia's format

_RMS = _norm("RMSNorm", "rms_norm_eps", 1e-6)
_UNTIED = tied("decoder", default=False)
_LLAMA_SIZE = {**_SIZE, "length": Blank(_LENGTH, default=2048)}
_ROPE = {"rope_parameters.rope_type": "default", "rope_scaling": None}


class Llama(Format):
    """Llama: RMSNorm, SwiGLU, rotary positions. (Touvron et al. 2023)"""

    architecture = "LlamaForCausalLM"
    config = {"model_type": "llama", **_ROPE}
    model = _stack(
        "Decoder",
        _RMS,
        "Pre",
        {"bias": switch("attention_bias", default=False), "dropout": _dropout("attention_dropout", default=0.0)},
        {"kind": "Gated", "activation": _activation("hidden_act", "silu"), "bias": switch("mlp_bias", default=False)},
        position={"kind": "Rotary", "base": Blank("rope_parameters.rope_theta", "rope_theta", default=10000.0)},
        tie=_UNTIED,
    )
    size = {
        **_LLAMA_SIZE,
        "key_heads": Blank("num_key_value_heads", "num_attention_heads"),
        "head_width": Blank("head_dim", default=None),
    }
    names = table(
        """
        decoder.embedding.table                            model.embed_tokens.weight
        <decoder>.{mixer,channel}.norm.gain                <layer>.{input,post_attention}_layernorm.weight
        <decoder>.mixer.piece.<maps>.<both>                <layer>.self_attn.{q,k,v,o}_proj.<both>
        <decoder>.channel.piece.{gate,hidden,out}.<both>   <layer>.mlp.{gate,up,down}_proj.<both>
        decoder.stack.norm.gain                            model.norm.weight
        head.weight                                        lm_head.weight
        """,
        layer="model.layers.*",
    )


class Mistral(Llama):
    """Llama without biases, each token of which sees a window. (Jiang et al. 2023)

    The first release's format, with `sliding_window`; without one the model is Llama's, and is written so.
    """

    architecture = "MistralForCausalLM"
    config = {**Llama.config, "model_type": "mistral"}
    model = overlay(
        Llama.model,
        {
            "pattern": {"kind": "Window", "size": Blank("sliding_window"), "pattern": "Causal"},
            "block": {"mixer": {"bias": False}, "channel": {"bias": False}},
        },
    )


class WindowlessMistral(Mistral):
    """Mistral from its second release on, whose tokens see all before them. (Jiang et al. 2023)"""

    config = {**Mistral.config, "sliding_window": None}
    model = {**Mistral.model, "pattern": "Causal"}


class Qwen2(Llama):
    """Llama with biases on queries, keys and values. (Yang et al. 2024)"""

    architecture = "Qwen2ForCausalLM"
    config = {**Llama.config, "model_type": "qwen2", "use_sliding_window": False}
    model = overlay(Llama.model, {"block": {"mixer": {"bias": "qkv"}, "channel": {"bias": False}}})


_CENTERED = {**_RMS, "gain": "zero_centered"}
# Releases call it gelu, and have always computed the tanh form.
_GEMMA_WORDS = {
    "gelu_pytorch_tanh": ACTIVATIONS["gelu_new"],  # the first of one meaning is written
    **ACTIVATIONS,
    "gelu": ACTIVATIONS["gelu_new"],
}


class Gemma(Llama):
    """Llama with GeGLU, gains of 1 + w, one table, and embeddings multiplied by √w. (Gemma Team 2024)"""

    architecture = "GemmaForCausalLM"
    config = {**Llama.config, "model_type": "gemma", "use_bidirectional_attention": False}
    model = overlay(
        Llama.model,
        {
            "embedding": {"kind": "Token", "scale": "sqrt_width"},
            "block": {
                "norm": _CENTERED,
                "channel": {"activation": Blank("hidden_act", default="gelu", values=_GEMMA_WORDS), "bias": False},
            },
            "stack": {"norm": _CENTERED},
            "tie": tied("decoder"),
        },
    )


_NEOX_DROPOUT = {"dropout": _dropout("hidden_dropout", default=0.0)}


class GPTNeoX(Format):
    """GPT-NeoX and Pythia: parallel branches, partly rotary positions. (Black et al. 2022)"""

    architecture = "GPTNeoXForCausalLM"
    config = {"model_type": "gpt_neox", **_ROPE}
    model = _stack(
        "Decoder",
        _norm("LayerNorm", "layer_norm_eps", 1e-5),
        {"kind": "Pre", **_NEOX_DROPOUT},
        {"bias": switch("attention_bias", default=True), "dropout": _dropout("attention_dropout", default=0.0)},
        {"activation": _activation("hidden_act", "gelu"), "bias": True},
        blocks=Blank("use_parallel_residual", default=True, values={True: "Parallel", False: "Serial"}),
        embedding={"kind": "Token", **_NEOX_DROPOUT},
        position={
            "kind": "Rotary",
            "base": Blank("rope_parameters.rope_theta", "rotary_emb_base", default=10000.0),
            "part": Blank("rope_parameters.partial_rotary_factor", "rotary_pct", default=0.25),
        },
        tie=_UNTIED,
    )
    size = _LLAMA_SIZE
    names = table(
        """
        decoder.embedding.table                            gpt_neox.embed_in.weight
        <decoder>.{mixer,channel}.norm.{gain,bias}         <layer>.{input,post_attention}_layernorm.{weight,bias}
        <decoder>.mixer.piece.{query+key+value}.<both>     <layer>.attention.query_key_value.<both>  by_head
        <decoder>.mixer.piece.out.<both>                   <layer>.attention.dense.<both>
        <decoder>.channel.piece.{hidden,out}.<both>        <layer>.mlp.{dense_h_to_4h,dense_4h_to_h}.<both>
        decoder.stack.norm.{gain,bias}                     gpt_neox.final_layer_norm.{weight,bias}
        head.weight                                        embed_out.weight
        """,
        layer="gpt_neox.layers.*",
    )
