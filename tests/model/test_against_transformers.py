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
    """One weight, the weight of the reference with the same values, and the link between them."""

    weight: Tensor
    reference_weight: Tensor
    link: TensorLink

    def to_local(self, reference: Tensor | None) -> Tensor:
        """Return a weight of the reference, or its gradient, in the shape of the weight."""
        assert reference is not None
        return self.link.to_local(reference, tuple(self.weight.shape))

    @property
    def key(self) -> tuple[int, int]:
        """Key that is equal for weights that share one weight of the reference."""
        return id(self.reference_weight), self.link.block


def pairs(model: nn.Module, reference: Any, links: Iterable[TensorLink]) -> list[Pair]:
    """Return the weights that a mapping links."""
    weights = dict(model.named_parameters())
    reference_weights = dict(reference.named_parameters(remove_duplicate=False))
    return [Pair(weights[link.local], reference_weights[link.external], link) for link in links]


def whole(task: str, settings: dict[str, Any]) -> Config:
    """Return a complete config, which weight mappings need."""
    return parse({"task": task, "model": settings})


@dataclass(frozen=True)
class ByHead(TensorLink):
    """Link to one of queries, keys and values of GPT-NeoX, which stores the rows of each of its 3 heads together."""

    def to_local(self, external: Tensor, local_shape: tuple[int, ...]) -> Tensor:
        return external.reshape(3, 3, -1, *local_shape[1:])[:, self.block].reshape(local_shape)


def neox_links() -> Iterator[TensorLink]:
    """Yield the links of GPT-NeoX."""
    yield TensorLink("embedding.tokens.weight", "gpt_neox.embed_in.weight")
    yield TensorLink("output.weight", "lm_head.weight")
    for number in range(2):
        local, external = f"decoder.layers.{number}", f"gpt_neox.layers.{number}"
        joint = f"{external}.attention.query_key_value"
        for block, (name, kind) in enumerate(product(("query", "key", "value"), ("weight", "bias"))):
            yield ByHead(f"{local}.self_attention.{name}.{kind}", f"{joint}.{kind}", block=block // 2)
        yield from linear_links(f"{local}.self_attention.output", f"{external}.attention.dense")
        yield from linear_links(f"{local}.self_attention_residual.norm", f"{external}.input_layernorm")
        yield from linear_links(f"{local}.feed_forward.w1", f"{external}.mlp.dense_h_to_4h")
        yield from linear_links(f"{local}.feed_forward.w2", f"{external}.mlp.dense_4h_to_h")
        yield from linear_links(f"{local}.feed_forward_residual.norm", f"{external}.post_attention_layernorm")
    yield from linear_links("decoder.norm", "gpt_neox.final_layer_norm")


@torch.no_grad()
def copy(model: nn.Module, reference: Any, links: list[Pair]) -> None:
    """Randomize the weights of the reference so that none is 0 or 1, and copy them; assert that none is missing."""
    for parameter in reference.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    for pair in links:
        pair.weight.copy_(pair.to_local(pair.reference_weight))
    assert {id(pair.weight) for pair in links} == {id(parameter) for parameter in model.parameters()}
    model.eval()
    reference.eval()


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def close_gradients(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=5e-5, rtol=1e-4)


def same_gradients(links: list[Pair], actual: Tensor, expected: Tensor) -> None:
    """Assert that the gradients of all weights agree, for a random gradient of the output."""
    gradient = torch.randn_like(expected) / expected.numel() ** 0.5
    actual.backward(gradient)  # type: ignore[no-untyped-call]
    expected.backward(gradient)  # type: ignore[no-untyped-call]
    # The gradient of a reference weight is the sum over the weights that share it.
    gradients: dict[tuple[int, int], Tensor] = {}
    for pair in links:
        assert pair.weight.grad is not None
        gradients[pair.key] = gradients[pair.key] + pair.weight.grad if pair.key in gradients else pair.weight.grad
    for pair in links:
        close_gradients(gradients[pair.key], pair.to_local(pair.reference_weight.grad))


def ids(rows: int, length: int, padded: bool = False) -> Tensor:
    """Return random tokens; if `padded`, two rows end with padding."""
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


def reference_bert() -> Any:
    """Return the same settings for `transformers`. The eager kernel returns attention weights. Without a padding id,
    the reference also has a gradient for the embedding of padding, which the mask of the test excludes.
    """
    return hf.BertConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=3, num_attention_heads=H, intermediate_size=F,
        max_position_embeddings=19, type_vocab_size=2, attn_implementation="eager", pad_token_id=None,
    )  # fmt: skip


def test_masked_lm_equals_bert() -> None:
    settings = ModelConfig.model_validate(BERT)
    model, reference = MaskedLanguageModel(settings, TextEncoder(settings)), hf.BertForMaskedLM(reference_bert())
    links = pairs(model, reference, bert.BERT.weight_mapping(whole("mlm", BERT), ()).links)
    copy(model, reference, links)
    ids_NS, segments_NS = ids(N, S, padded=True), torch.randint(2, (N, S))
    mask_NS = (ids_NS != 0).long()
    expected = reference(ids_NS, mask_NS, segments_NS, output_attentions=True, output_hidden_states=True)
    read = model.backbone(ids_NS, want_attention=True, segments_BS=segments_NS)
    close(read.states_BSD, expected.hidden_states[-1])
    for weights, reference_weights in zip(read.attention, expected.attentions, strict=True):
        close(weights, reference_weights)
    states_NSD = model.backbone(ids_NS, segments_BS=segments_NS).states_BSD
    fused = model.logits(model.norm(nn.functional.gelu(model.transform(states_NSD))))
    close(fused, expected.logits)
    same_gradients(links, fused, expected.logits)


def test_pooling_equals_bert() -> None:
    settings = {**BERT, "pooler": True, "head": "embedding"}
    config = whole("embed", settings)
    network, reference = EmbeddingModel(config.model, TextEncoder(config.model)), hf.BertModel(reference_bert())
    copy(network, reference, pairs(network, reference, bert.BERT.weight_mapping(config, ()).links))
    model = network.backbone
    ids_NS = ids(N, S, padded=True)
    expected, read = reference(ids_NS, (ids_NS != 0).long()), model(ids_NS)
    close(read.states_BSD, expected.last_hidden_state)
    close(read.pooled_BD, expected.pooler_output)


def test_language_model_equals_gpt2() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 3, "model_dim": D, "feed_forward_dim": F, "num_heads": H,
        "vocab_size": V,
        "activation": "gelu_tanh", "positions": "learned", "max_positions": 19, "scale_embeddings": False,
    }  # fmt: skip
    model = LanguageModel(ModelConfig.model_validate(settings))
    reference = hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=V, n_positions=19, n_embd=D, n_layer=3, n_head=H, n_inner=F, bos_token_id=2, eos_token_id=3,
            attn_implementation="eager",
        )
    )  # fmt: skip
    links = pairs(model, reference, gpt2.GPT2.weight_mapping(whole("lm", settings), ()).links)
    copy(model, reference, links)
    ids_NT = ids(N, T)
    expected, logits = reference(ids_NT, output_attentions=True), model.logits(model(ids_NT))
    close(logits, expected.logits)
    same_gradients(links, logits, expected.logits)
    step = model.step(*model.start(model.encode(ids_NT), 1), want_attention=True)
    assert step.attention is not None
    for layer, reference_weights in zip(step.attention, expected.attentions, strict=True):
        close(layer.self_RHTP, reference_weights)


def test_rotary_positions_equal_gpt_neox() -> None:
    settings = {
        "family": "decoder", "num_decoder_layers": 2, "model_dim": 24, "feed_forward_dim": F, "num_heads": 3,
        "vocab_size": V,
        "activation": "gelu", "positions": "rotary", "scale_embeddings": False, "tied_embeddings": "none",
    }  # fmt: skip
    model = LanguageModel(ModelConfig.model_validate(settings))
    reference = hf.GPTNeoXForCausalLM(
        hf.GPTNeoXConfig(
            vocab_size=V, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=F,
            rotary_pct=1.0, use_parallel_residual=False,
        )
    )  # fmt: skip
    links = pairs(model, reference, neox_links())
    copy(model, reference, links)
    ids_NS = ids(N, S)
    expected, logits = reference(ids_NS).logits, model.logits(model(ids_NS))
    close(logits, expected)
    same_gradients(links, logits, expected)


def t5_pair(version: str) -> tuple[Transformer, Any]:
    """Return a model and the reference of version 1 or 1.1, with heads that do not divide the width."""
    is_first = version == "1"
    settings = {
        "num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": D, "feed_forward_dim": F, "num_heads": 3,
        "key_dim": 5, "value_dim": 5, "norm": "rms", "norm_epsilon": 1e-6, "bias": False, "positions": "relative",
        "relative_buckets": 8, "relative_max_distance": 11, "scale_attention": False, "scale_embeddings": False,
        "vocab_size": V, "gated": not is_first, "activation": "relu" if is_first else "gelu_tanh",
        "scale_output": is_first, "tied_embeddings": "all" if is_first else "input",
    }  # fmt: skip
    reference = hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=V, d_model=D, d_kv=5, d_ff=F, num_layers=2, num_decoder_layers=3, num_heads=3,
            relative_attention_num_buckets=8, relative_attention_max_distance=11,
            feed_forward_proj="relu" if is_first else "gated-gelu", tie_word_embeddings=is_first,
            decoder_start_token_id=2,
        )
    )  # fmt: skip
    if not is_first:
        reference.lm_head.weight = nn.Parameter(torch.randn(V, D))
    return Transformer(ModelConfig.model_validate(settings)), reference


def t5_links(model: Transformer, reference: Any) -> list[Pair]:
    """Return the pairs of weights of T5."""
    return pairs(model, reference, t5.T5.weight_mapping(whole("translate", model.config.model_dump()), ()).links)


@pytest.mark.parametrize("version", ["1", "1.1"])
def test_transformer_equals_t5(version: str) -> None:
    model, reference = t5_pair(version)
    links = t5_links(model, reference)
    copy(model, reference, links)
    src_NS, tgt_NT = ids(N, S, padded=True), ids(N, S + 4)
    mask_NS = (src_NS != 0).long()
    expected = reference(input_ids=src_NS, attention_mask=mask_NS, decoder_input_ids=tgt_NT)
    layout = padded_layout(src_NS.shape[1], allowed_B11S=(src_NS != 0)[:, None, None])
    states_NSD, _ = model.encoder(model.source_embedding(src_NS, layout), layout)
    close(states_NSD, expected.encoder_last_hidden_state)
    logits = model.logits(model(src_NS, tgt_NT))
    # Logits of T5 1.1 are not scaled: over ten seeds they differ by 8e-6 to 3e-5.
    torch.testing.assert_close(logits, expected.logits, atol=1e-5 if version == "1" else 1e-4, rtol=1e-5)
    same_gradients(links, logits, expected.logits)


@pytest.mark.parametrize(
    ("preset", "model", "reference", "reference_config"),
    [
        ("bert-base", TextEncoder, hf.BertModel, hf.BertConfig()),
        ("bert-large", TextEncoder, hf.BertModel, hf.BertConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
        ("gpt2", LanguageModel, hf.GPT2LMHeadModel, hf.GPT2Config()),
        ("t5-small", Transformer, hf.T5ForConditionalGeneration, hf.T5Config()),
    ],
)  # fmt: skip
def test_presets_have_exactly_as_many_parameters(
    preset: str, model: Any, reference: Any, reference_config: Any
) -> None:
    with torch.device("meta"):
        mine = model(build({"model": {"vocab_size": reference_config.vocab_size}}, preset=preset).model)
        expected = reference(reference_config)
    assert count_parameters(mine) == count_parameters(expected)
