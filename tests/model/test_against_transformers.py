"""BERT, GPT-2, GPT-NeoX and T5 equal `transformers` on the same weights: states, logits, weights, every gradient."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor, nn

from clearhead.config import Config, ModelConfig, build, parse
from clearhead.interop.huggingface import bert, gpt2, t5
from clearhead.interop.weight_mapping import TensorLink, linear_links
from clearhead.model.language_model import LanguageModel
from clearhead.model.output_heads import EmbeddingModel, MaskedLanguageModel
from clearhead.model.parameters import count_parameters
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer
from tests.model.options import padded_layout

hf: Any = transformers  # whose types are not strict
# N sentences, S source length, T target length, V vocabulary, D model width, H heads, F inner width
N, S, T, V, D, H, F = 3, 13, 7, 23, 22, 11, 17


class Pair(NamedTuple):
    """One weight of ours, that of theirs which has the same numbers, and how."""

    ours: Tensor
    theirs: Tensor
    link: TensorLink

    def read(self, theirs: Tensor | None) -> Tensor:
        """Their weight, or its gradient, in the shape of ours."""
        assert theirs is not None
        return self.link.read(theirs, tuple(self.ours.shape))

    @property
    def key(self) -> tuple[int, int]:
        """Equal for weights of ours that are one of theirs."""
        return id(self.theirs), self.link.block


def pairs(ours: nn.Module, theirs: Any, links: Iterable[TensorLink]) -> list[Pair]:
    """The weights that a table of names links."""
    own = dict(ours.named_parameters())
    their = dict(theirs.named_parameters(remove_duplicate=False))
    return [Pair(own[link.ours], their[link.theirs], link) for link in links]


def whole(task: str, settings: dict[str, Any]) -> Config:
    """A config, as the tables of names want it."""
    return parse({"task": task, "model": settings})


@dataclass(frozen=True)
class ByHead(TensorLink):
    """GPT-NeoX has the rows of queries, keys and values of one head together: here 3 heads."""

    def read(self, theirs: Tensor, ours: tuple[int, ...]) -> Tensor:
        return theirs.reshape(3, 3, -1, *ours[1:])[:, self.block].reshape(ours)


def neox_links() -> Iterator[TensorLink]:
    """GPT-NeoX."""
    yield TensorLink("embedding.tokens.weight", "gpt_neox.embed_in.weight")
    yield TensorLink("output.weight", "lm_head.weight")
    for number in range(2):
        ours, theirs = f"decoder.layers.{number}", f"gpt_neox.layers.{number}"
        joint = f"{theirs}.attention.query_key_value"
        for block, (name, kind) in enumerate(product(("query", "key", "value"), ("weight", "bias"))):
            yield ByHead(f"{ours}.self_attention.{name}.{kind}", f"{joint}.{kind}", block=block // 2)
        yield from linear_links(f"{ours}.self_attention.output", f"{theirs}.attention.dense")
        yield from linear_links(f"{ours}.self_attention_residual.norm", f"{theirs}.input_layernorm")
        yield from linear_links(f"{ours}.feed_forward.w1", f"{theirs}.mlp.dense_h_to_4h")
        yield from linear_links(f"{ours}.feed_forward.w2", f"{theirs}.mlp.dense_4h_to_h")
        yield from linear_links(f"{ours}.feed_forward_residual.norm", f"{theirs}.post_attention_layernorm")
    yield from linear_links("decoder.norm", "gpt_neox.final_layer_norm")


@torch.no_grad()
def copy(ours: nn.Module, theirs: Any, links: list[Pair]) -> None:
    """Their weights, shaken so that none is 0 or 1, in our network; no weight of ours may be left out."""
    for parameter in theirs.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    for link in links:
        link.ours.copy_(link.read(link.theirs))
    assert {id(link.ours) for link in links} == {id(parameter) for parameter in ours.parameters()}
    ours.eval()
    theirs.eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def close_gradients(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=5e-5, rtol=1e-4)


def same_gradients(links: list[Pair], found: Tensor, expected: Tensor) -> None:
    """Of every weight, for a random gradient of the output."""
    gradient = torch.randn_like(expected) / expected.numel() ** 0.5
    found.backward(gradient)  # type: ignore[no-untyped-call]
    expected.backward(gradient)  # type: ignore[no-untyped-call]
    # Theirs, shared by several of ours, is the sum over them.
    ours: dict[tuple[int, int], Tensor] = {}
    for link in links:
        assert link.ours.grad is not None
        ours[link.key] = ours[link.key] + link.ours.grad if link.key in ours else link.ours.grad
    for link in links:
        close_gradients(ours[link.key], link.read(link.theirs.grad))


def ids(rows: int, length: int, padded: bool = False) -> Tensor:
    """Random tokens; padding behind in two rows if asked for."""
    tokens = torch.randint(4, V, (rows, length))
    if padded:
        tokens[0, 5:] = 0
        tokens[2, 3:] = 0
    return tokens


BERT = {
    "family": "encoder", "head": "masked_lm", "num_encoder_layers": 3, "model_dim": D, "feed_forward_dim": F,
    "num_heads": H,
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
    ours, theirs = MaskedLanguageModel(settings, TextEncoder(settings)), hf.BertForMaskedLM(their_bert())
    links = pairs(ours, theirs, bert.table(whole("mlm", BERT)).links)
    copy(ours, theirs, links)
    ids_NS, segments_NS = ids(N, S, padded=True), torch.randint(2, (N, S))
    mask_NS = (ids_NS != 0).long()
    expected = theirs(ids_NS, mask_NS, segments_NS, output_attentions=True, output_hidden_states=True)
    read = ours.backbone(ids_NS, want_attention=True, segments_BS=segments_NS)
    close(read.states_BSD, expected.hidden_states[-1])
    for weights, their_weights in zip(read.attention, expected.attentions, strict=True):
        close(weights, their_weights)
    states_NSD = ours.backbone(ids_NS, segments_BS=segments_NS).states_BSD
    fused = ours.logits(ours.norm(nn.functional.gelu(ours.transform(states_NSD))))
    close(fused, expected.logits)
    same_gradients(links, fused, expected.logits)


def test_bert_pools_as_theirs_does() -> None:
    settings = {**BERT, "pooler": True, "head": "embedding"}
    config = whole("embed", settings)
    network, theirs = EmbeddingModel(config.model, TextEncoder(config.model)), hf.BertModel(their_bert())
    copy(network, theirs, pairs(network, theirs, bert.table(config).links))
    ours = network.backbone
    ids_NS = ids(N, S, padded=True)
    expected, read = theirs(ids_NS, (ids_NS != 0).long()), ours(ids_NS)
    close(read.states_BSD, expected.last_hidden_state)
    close(read.pooled_BD, expected.pooler_output)


def test_gpt2_equals_theirs() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 3, "model_dim": D, "feed_forward_dim": F, "num_heads": H,
        "vocab_size": V,
        "activation": "gelu_tanh", "positions": "learned", "max_positions": 19, "scale_embeddings": False,
    }  # fmt: skip
    ours = LanguageModel(ModelConfig.model_validate(settings))
    theirs = hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=V, n_positions=19, n_embd=D, n_layer=3, n_head=H, n_inner=F, bos_token_id=2, eos_token_id=3,
            attn_implementation="eager",
        )
    )  # fmt: skip
    links = pairs(ours, theirs, gpt2.table(whole("lm", settings)).links)
    copy(ours, theirs, links)
    ids_NT = ids(N, T)
    expected, logits = theirs(ids_NT, output_attentions=True), ours.logits(ours(ids_NT))
    close(logits, expected.logits)
    same_gradients(links, logits, expected.logits)
    step = ours.step(*ours.start(ours.encode(ids_NT), 1), want_attention=True)
    assert step.attention is not None
    for layer, their_weights in zip(step.attention, expected.attentions, strict=True):
        close(layer.self_RHTP, their_weights)


def test_gpt_neox_turns_as_theirs_does() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 2, "model_dim": 24, "feed_forward_dim": F, "num_heads": 3,
        "vocab_size": V,
        "activation": "gelu", "positions": "rotary", "scale_embeddings": False, "tied_embeddings": "none",
    }  # fmt: skip
    ours = LanguageModel(ModelConfig.model_validate(settings))
    theirs = hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(
            vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=F,
            rotary_pct=1.0, use_parallel_residual=False,
        )
    )  # fmt: skip
    links = pairs(ours, theirs, neox_links())
    copy(ours, theirs, links)
    ids_NS = ids(N, S)
    expected, logits = theirs(ids_NS).logits, ours.logits(ours(ids_NS))
    close(logits, expected)
    same_gradients(links, logits, expected)


def t5_pair(version: str) -> tuple[Transformer, Any]:
    """Ours and theirs of version 1 or 1.1, with heads that do not divide the width."""
    is_first = version == "1"
    settings = {
        "num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": D, "feed_forward_dim": F, "num_heads": 3,
        "key_dim": 5, "value_dim": 5, "norm": "rms", "norm_epsilon": 1e-6, "bias": False, "positions": "relative",
        "relative_buckets": 8, "relative_max_distance": 11, "scale_attention": False, "scale_embeddings": False,
        "vocab_size": V, "gated": not is_first, "activation": "relu" if is_first else "gelu_tanh",
        "scale_output": is_first, "tied_embeddings": "all" if is_first else "input",
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


def t5_links(ours: Transformer, theirs: Any) -> list[Pair]:
    """Which weight of theirs is which of ours."""
    return pairs(ours, theirs, t5.table(whole("translate", ours.config.model_dump())).links)


@pytest.mark.parametrize("version", ["1", "1.1"])
def test_t5_equals_theirs(version: str) -> None:
    ours, theirs = t5_pair(version)
    links = t5_links(ours, theirs)
    copy(ours, theirs, links)
    src_NS, tgt_NT = ids(N, S, padded=True), ids(N, S + 4)
    mask_NS = (src_NS != 0).long()
    expected = theirs(input_ids=src_NS, attention_mask=mask_NS, decoder_input_ids=tgt_NT)
    layout = padded_layout(src_NS.shape[1], allowed_B11S=(src_NS != 0)[:, None, None])
    states_NSD, _ = ours.encoder(ours.source_embedding(src_NS, layout), layout)
    close(states_NSD, expected.encoder_last_hidden_state)
    logits = ours.logits(ours(src_NS, tgt_NT))
    # Logits of T5 1.1 are not scaled: over ten seeds they differ by 8e-6 to 3e-5.
    torch.testing.assert_close(logits, expected.logits, atol=1e-5 if version == "1" else 1e-4, rtol=1e-5)
    same_gradients(links, logits, expected.logits)


@pytest.mark.parametrize(
    ("preset", "ours", "theirs", "their_config"),
    [
        ("bert-base", TextEncoder, hf.BertModel, hf.BertConfig()),
        ("bert-large", TextEncoder, hf.BertModel, hf.BertConfig(
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
