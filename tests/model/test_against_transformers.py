"""BERT, GPT-2, GPT-NeoX and T5 equal `transformers` on the same weights: states, logits, weights, every gradient."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor, nn

from clearhead.config import ModelConfig, build
from clearhead.model.heads import MaskedNetwork
from clearhead.model.language import LanguageModel
from clearhead.model.text_reader import TextReader
from clearhead.model.transformer import Transformer
from clearhead.model.weights import count_parameters

hf: Any = transformers  # whose types are not strict
# N sentences, S source length, T target length, V vocabulary, D model width, H heads, F inner width
N, S, T, V, D, H, F = 3, 13, 7, 23, 22, 11, 17


class Link(NamedTuple):
    """One weight of ours, and those of theirs that are the same numbers: below each other, maybe rearranged."""

    ours: Tensor
    theirs: list[Tensor]
    arrange: Callable[[Tensor], Tensor] = torch.clone

    def join(self, parts: list[Tensor | None]) -> Tensor:
        """Their weights, or their gradients, in the shape of ours."""
        return self.arrange(torch.cat([part for part in parts if part is not None]))


def linear(ours: Any, theirs: Any) -> Iterator[Link]:
    """A linear layer or a norm: weight, and bias if there is one."""
    yield Link(ours.weight, [theirs.weight])
    if getattr(theirs, "bias", None) is not None:
        yield Link(ours.bias, [theirs.bias])


def conv1d(ours: Any, theirs: Any) -> Iterator[Link]:
    """GPT-2's linear layer, whose weight is transposed."""
    yield Link(ours.weight, [theirs.weight], torch.t)
    yield Link(ours.bias, [theirs.bias])


def bert_links(ours: TextReader, theirs: Any) -> Iterator[Link]:
    """The body of BERT."""
    embedding: Any = ours.embedding
    yield Link(embedding.tokens.weight, [theirs.embeddings.word_embeddings.weight])
    yield Link(embedding.positions.table_LD, [theirs.embeddings.position_embeddings.weight])
    yield Link(embedding.segments.weight, [theirs.embeddings.token_type_embeddings.weight])
    yield from linear(embedding.norm, theirs.embeddings.LayerNorm)
    for layer, their in zip(ours.encoder.layers, theirs.encoder.layer, strict=True):
        each: Any = layer
        parts = [getattr(their.attention.self, name) for name in ("query", "key", "value")]
        yield Link(each.attention.in_weight, [part.weight for part in parts])
        yield Link(each.attention.in_bias, [part.bias for part in parts])
        yield from linear(each.attention.out, their.attention.output.dense)
        yield from linear(each.attention_residual.norm, their.attention.output.LayerNorm)
        yield from linear(each.feed_forward.inner, their.intermediate.dense)
        yield from linear(each.feed_forward.outer, their.output.dense)
        yield from linear(each.feed_forward_residual.norm, their.output.LayerNorm)
    if ours.pooler is not None:
        yield from linear(ours.pooler, theirs.pooler.dense)


def masked_links(ours: MaskedNetwork, theirs: Any) -> Iterator[Link]:
    """BERT with the head that guesses masked words."""
    yield from bert_links(ours.reader, theirs.bert)
    yield from linear(ours.transform, theirs.cls.predictions.transform.dense)
    yield from linear(ours.norm, theirs.cls.predictions.transform.LayerNorm)
    yield Link(ours.bias_V, [theirs.cls.predictions.decoder.bias])


def gpt2_links(ours: LanguageModel, theirs: Any) -> Iterator[Link]:
    """GPT-2."""
    embedding: Any = ours.embedding
    yield Link(embedding.tokens.weight, [theirs.transformer.wte.weight])
    yield Link(embedding.positions.table_LD, [theirs.transformer.wpe.weight])
    for layer, their in zip(ours.decoder.layers, theirs.transformer.h, strict=True):
        each: Any = layer
        yield Link(each.attention.in_weight, [their.attn.c_attn.weight], torch.t)
        yield Link(each.attention.in_bias, [their.attn.c_attn.bias])
        yield from conv1d(each.attention.out, their.attn.c_proj)
        yield from linear(each.attention_residual.norm, their.ln_1)
        yield from conv1d(each.feed_forward.inner, their.mlp.c_fc)
        yield from conv1d(each.feed_forward.outer, their.mlp.c_proj)
        yield from linear(each.feed_forward_residual.norm, their.ln_2)
    yield from linear(ours.decoder.norm, theirs.transformer.ln_f)


def neox_links(ours: LanguageModel, theirs: Any) -> Iterator[Link]:
    """GPT-NeoX, which has the rows of queries, keys and values of one head together."""

    def by_part(rows: Tensor) -> Tensor:
        return rows.reshape(3, 3, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)  # 3 heads, 3 parts

    yield Link(ours.embedding.tokens.weight, [theirs.gpt_neox.embed_in.weight])
    yield Link(ours.output.weight, [theirs.lm_head.weight])
    for layer, their in zip(ours.decoder.layers, theirs.gpt_neox.layers, strict=True):
        each: Any = layer
        yield Link(each.attention.in_weight, [their.attention.query_key_value.weight], by_part)
        yield Link(each.attention.in_bias, [their.attention.query_key_value.bias], by_part)
        yield from linear(each.attention.out, their.attention.dense)
        yield from linear(each.attention_residual.norm, their.input_layernorm)
        yield from linear(each.feed_forward.inner, their.mlp.dense_h_to_4h)
        yield from linear(each.feed_forward.outer, their.mlp.dense_4h_to_h)
        yield from linear(each.feed_forward_residual.norm, their.post_attention_layernorm)
    yield from linear(ours.decoder.norm, theirs.gpt_neox.final_layer_norm)


def t5_links(ours: Transformer, theirs: Any) -> Iterator[Link]:
    """T5, both versions; in version 1.1 the output has a table of its own."""
    yield Link(ours.source_embedding.tokens.weight, [theirs.shared.weight])
    if theirs.lm_head.weight is not theirs.shared.weight:
        yield Link(ours.target_embedding.tokens.weight, [theirs.shared.weight])
        yield Link(ours.output.weight, [theirs.lm_head.weight])
    for stack, their_stack in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        assert stack.relative is not None
        bias = their_stack.block[0].layer[0].SelfAttention.relative_attention_bias
        yield Link(stack.relative.table_UH, [bias.weight])
        for layer, their in zip(stack.layers, their_stack.block, strict=True):
            yield from t5_layer_links(layer, [*their.layer])
        yield from linear(stack.norm, their_stack.final_layer_norm)


def t5_layer_links(ours: Any, theirs: list[Any]) -> Iterator[Link]:
    """One layer of the encoder or the decoder of T5."""
    looks = [(ours.attention, ours.attention_residual, theirs[0].SelfAttention, theirs[0].layer_norm)]
    if len(theirs) == 3:
        looks.append((ours.cross, ours.cross_residual, theirs[1].EncDecAttention, theirs[1].layer_norm))
    for attention, residual, their, norm in looks:
        yield Link(attention.in_weight, [their.q.weight, their.k.weight, their.v.weight])
        yield from linear(attention.out, their.o)
        yield from linear(residual.norm, norm)
    network = theirs[-1].DenseReluDense
    if ours.feed_forward.gate is None:
        yield from linear(ours.feed_forward.inner, network.wi)
    else:
        yield from linear(ours.feed_forward.inner, network.wi_0)
        yield from linear(ours.feed_forward.gate, network.wi_1)
    yield from linear(ours.feed_forward.outer, network.wo)
    yield from linear(ours.feed_forward_residual.norm, theirs[-1].layer_norm)


@torch.no_grad()
def copy(ours: nn.Module, theirs: Any, links: list[Link]) -> None:
    """Their weights, shaken so that none is 0 or 1, in our network; no weight of ours may be left out."""
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    for link in links:
        link.ours.copy_(link.join([*link.theirs]))
    assert {id(link.ours) for link in links} == {id(parameter) for parameter in ours.parameters()}
    ours.eval()
    theirs.eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def close_gradients(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-4)


def same_gradients(links: list[Link], found: Tensor, expected: Tensor) -> None:
    """Of every weight, for a random gradient of the output."""
    gradient = torch.randn_like(expected) / expected.numel() ** 0.5
    found.backward(gradient)  # type: ignore[no-untyped-call]
    expected.backward(gradient)  # type: ignore[no-untyped-call]
    # Theirs, shared by several of ours, is the sum over them.
    ours: dict[tuple[int, ...], Tensor] = {}
    for link in links:
        assert link.ours.grad is not None
        key = tuple(map(id, link.theirs))
        ours[key] = ours[key] + link.ours.grad if key in ours else link.ours.grad
    for link in links:
        close_gradients(ours[tuple(map(id, link.theirs))], link.join([weight.grad for weight in link.theirs]))


def ids(rows: int, length: int, padded: bool = False) -> Tensor:
    """Random tokens; padding behind in two rows if asked for."""
    tokens = torch.randint(4, V, (rows, length))
    if padded:
        tokens[0, 5:] = 0
        tokens[2, 3:] = 0
    return tokens


BERT = {
    "family": "encoder", "head": "masked", "num_encoder_layers": 3, "model_dim": D, "inner_dim": F, "num_heads": H,
    "norm_placement": "post", "norm_epsilon": 1e-12, "activation": "gelu", "positions": "learned", "max_positions": 19,
    "scale_embeddings": False, "embedding_norm": True, "num_segments": 2, "pooling": "first", "vocab_size": V,
}  # fmt: skip


def their_bert() -> Any:
    """The same in their words. The explicit kernel gives attention weights; without a padding id of its own, theirs
    too has a gradient for the embedding of padding, which is masked by what the test gives.
    """
    return hf.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=3, num_attention_heads=H, intermediate_size=F,
        max_position_embeddings=19, type_vocab_size=2, attn_implementation="eager", pad_token_id=None,
    )  # fmt: skip


def test_bert_guesses_masked_words_as_theirs_does() -> None:
    settings = ModelConfig.model_validate(BERT)
    ours, theirs = MaskedNetwork(settings, TextReader(settings)), hf.BertForMaskedLM(their_bert())
    links = [*masked_links(ours, theirs)]
    copy(ours, theirs, links)
    ids_NS, segments_NS = ids(N, S, padded=True), torch.randint(2, (N, S))
    mask_NS = (ids_NS != 0).long()
    expected = theirs(ids_NS, mask_NS, segments_NS, output_attentions=True, output_hidden_states=True)
    read = ours.reader(ids_NS, want_attention=True, segments_BS=segments_NS)
    close(read.states_BSD, expected.hidden_states[-1])
    for weights, their_weights in zip(read.attention, expected.attentions, strict=True):
        close(weights, their_weights)
    fused = ours.logits(ours.hidden(ours.reader(ids_NS, segments_BS=segments_NS).states_BSD))
    close(fused, expected.logits)
    same_gradients(links, fused, expected.logits)


def test_bert_pools_as_theirs_does() -> None:
    ours, theirs = TextReader(ModelConfig.model_validate({**BERT, "pooler": True})), hf.BertModel(their_bert())
    copy(ours, theirs, [*bert_links(ours, theirs)])
    ids_NS = ids(N, S, padded=True)
    expected, read = theirs(ids_NS, (ids_NS != 0).long()), ours(ids_NS)
    close(read.states_BSD, expected.last_hidden_state)
    close(read.pooled_BD, expected.pooler_output)


def test_gpt2_equals_theirs() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 3, "model_dim": D, "inner_dim": F, "num_heads": H, "vocab_size": V,
        "activation": "gelu_tanh", "positions": "learned", "max_positions": 19, "scale_embeddings": False,
    }  # fmt: skip
    ours = LanguageModel(ModelConfig.model_validate(settings))
    theirs = hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=V, n_positions=19, n_embd=D, n_layer=3, n_head=H, n_inner=F, bos_token_id=2, eos_token_id=3,
            attn_implementation="eager",
        )
    )  # fmt: skip
    links = [*gpt2_links(ours, theirs)]
    copy(ours, theirs, links)
    ids_NT = ids(N, T)
    expected, logits = theirs(ids_NT, output_attentions=True), ours.logits(ours(ids_NT))
    close(logits, expected.logits)
    same_gradients(links, logits, expected.logits)
    step = ours.step(*ours.start(ours.encode(ids_NT), 1), want_attention=True)
    assert step.attention is not None
    for layer, their_weights in zip(step.attention, expected.attentions, strict=True):
        close(layer.self_RHTT, their_weights)


def test_gpt_neox_turns_as_theirs_does() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 2, "model_dim": 24, "inner_dim": F, "num_heads": 3, "vocab_size": V,
        "activation": "gelu", "positions": "rotary", "scale_embeddings": False, "embeddings": "separate",
    }  # fmt: skip
    ours = LanguageModel(ModelConfig.model_validate(settings))
    theirs = hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(
            vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=F,
            rotary_pct=1.0, use_parallel_residual=False,
        )
    )  # fmt: skip
    links = [*neox_links(ours, theirs)]
    copy(ours, theirs, links)
    ids_NS = ids(N, S)
    expected, logits = theirs(ids_NS).logits, ours.logits(ours(ids_NS))
    close(logits, expected)
    same_gradients(links, logits, expected)


def t5_pair(version: str) -> tuple[Transformer, Any]:
    """Ours and theirs of version 1 or 1.1, with heads that do not divide the width."""
    is_first = version == "1"
    settings = {
        "num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": D, "inner_dim": F, "num_heads": 3, "key_dim": 5,
        "value_dim": 5, "norm": "rms", "norm_epsilon": 1e-6, "bias": False, "positions": "relative",
        "relative_buckets": 8, "relative_distance": 11, "scale_attention": False, "scale_embeddings": False,
        "vocab_size": V, "gated": not is_first, "activation": "relu" if is_first else "gelu_tanh",
        "scale_output": is_first, "embeddings": "shared" if is_first else "separate",
    }  # fmt: skip
    theirs = hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=V, d_model=D, d_kv=5, d_ff=F, num_layers=2, num_decoder_layers=3, num_heads=3,
            relative_attention_num_buckets=8, relative_attention_max_distance=11,
            feed_forward_proj="relu" if is_first else "gated-gelu", tie_word_embeddings=is_first,
            decoder_start_token_id=2,
        )
    )  # fmt: skip
    if not is_first:
        theirs.lm_head.weight = nn.Parameter(torch.randn(V, D))
    return Transformer(ModelConfig.model_validate(settings)), theirs


@pytest.mark.parametrize("version", ["1", "1.1"])
def test_t5_equals_theirs(version: str) -> None:
    ours, theirs = t5_pair(version)
    links = [*t5_links(ours, theirs)]
    copy(ours, theirs, links)
    src_NS, tgt_NT = ids(N, S, padded=True), ids(N, S + 4)
    mask_NS = (src_NS != 0).long()
    expected = theirs(input_ids=src_NS, attention_mask=mask_NS, decoder_input_ids=tgt_NT)
    states_NSD, _ = ours.encoder(ours.source_embedding(src_NS), (src_NS != 0)[:, None, None])
    close(states_NSD, expected.encoder_last_hidden_state)
    logits = ours.logits(ours(src_NS, tgt_NT))
    close(logits, expected.logits)
    same_gradients(links, logits, expected.logits)


@pytest.mark.parametrize(
    ("preset", "ours", "theirs", "their_config"),
    [
        ("bert-base", TextReader, hf.BertModel, hf.BertConfig()),
        ("bert-large", TextReader, hf.BertModel, hf.BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
        ("gpt2", LanguageModel, hf.GPT2LMHeadModel, hf.GPT2Config()),
        ("t5-small", Transformer, hf.T5ForConditionalGeneration, hf.T5Config()),
    ],
)  # fmt: skip
def test_presets_have_exactly_as_many_parameters(preset: str, ours: Any, theirs: Any, their_config: Any) -> None:
    with torch.device("meta"):
        mine = ours(build({"model": {"vocab_size": their_config.vocab_size}}, preset=preset).model)
        expected = theirs(their_config)
    assert count_parameters(mine) == count_parameters(expected)
