"""Image encoders: the ViT equals that of `transformers`, the others equal their formulas, and each can be trained."""

from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification

from clearhead.config import ModelConfig, build
from clearhead.errors import ConfigError, DataError
from clearhead.model.encoder_output import EncoderOutput
from clearhead.model.output_heads import SequenceClassifier
from clearhead.model.parameters import count_parameters
from clearhead.model.positions import sinusoids
from clearhead.model.registry import build_model
from clearhead.model.vision.baselines import ConvolutionalEncoder, MLPEncoder
from clearhead.model.vision.vision_transformer import PatchEmbedding, VisionTransformer

# B batch, C channels, P patch size, G patches per side, D model width, H heads, L labels: mostly distinct primes
B, C, P, G, D, H, F_INNER, L = 2, 3, 5, 7, 22, 11, 17, 13
SIZE = P * G
IMAGE_ENCODERS: dict[str, Any] = {"vit": VisionTransformer, "cnn": ConvolutionalEncoder, "mlp": MLPEncoder}


def config(family: str = "vit", **settings: Any) -> ModelConfig:
    """Return a config in which no two axes have the same size."""
    sizes = {
        "family": family, "head": "classification", "num_encoder_layers": 2, "model_dim": D,
        "feed_forward_dim": F_INNER,
        "num_heads": H, "dropout": 0.0, "image_size": SIZE, "patch_size": P, "image_channels": C, "num_labels": L,
        "norm_groups": H, "positions": "learned",
    }  # fmt: skip
    return ModelConfig.model_validate(sizes | settings)


def images(batch: int = B) -> Tensor:
    """Return images of random pixels."""
    return torch.randn(batch, C, SIZE, SIZE)


def pair() -> tuple[SequenceClassifier, ViTForImageClassification]:
    """Return this and the reference network with the same random weights, biases and norms included."""
    sizes: dict[str, Any] = {
        "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": F_INNER,
        "image_size": SIZE, "patch_size": P, "num_channels": C, "num_labels": L, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
        "attn_implementation": "eager",
    }  # fmt: skip
    reference = ViTForImageClassification(ViTConfig(**sizes))
    reference.train(False)
    settings = config(activation="gelu", norm_epsilon=1e-12, pooling="first")
    model = SequenceClassifier(settings, VisionTransformer(settings)).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        copy_weights(model.backbone, reference.vit)
        model.output.load_state_dict(reference.classifier.state_dict())
    return model, reference


def copy_weights(model: VisionTransformer, reference: Any) -> None:
    """Copy the weights of the reference; a convolution with stride is a linear layer on each patch."""
    embedding, reference_embedding = model.embedding, reference.embeddings
    projection = reference_embedding.patch_embeddings.projection
    embedding.projection.load_state_dict({"weight": projection.weight.flatten(1), "bias": projection.bias})
    embedding.load_state_dict(
        {
            "class_token": reference_embedding.cls_token[0, 0],
            "positions.weight": reference_embedding.position_embeddings[0],
        },
        strict=False,
    )
    for layer, reference_layer in zip(model.encoder.layers, reference.layers, strict=True):
        parts: Any = layer
        for part, reference_part in (
            (parts.self_attention.query, reference_layer.attention.q_proj),
            (parts.self_attention.key, reference_layer.attention.k_proj),
            (parts.self_attention.value, reference_layer.attention.v_proj),
            (parts.self_attention.output, reference_layer.attention.o_proj),
            (parts.self_attention_residual.norm, reference_layer.layernorm_before),
            (parts.feed_forward_residual.norm, reference_layer.layernorm_after),
            (parts.feed_forward.w1, reference_layer.mlp.fc1),
            (parts.feed_forward.w2, reference_layer.mlp.fc2),
        ):
            part.load_state_dict(reference_part.state_dict())
    model.encoder.norm.load_state_dict(reference.layernorm.state_dict())


@torch.no_grad()
def test_vision_transformer_equals_the_reference() -> None:
    model, reference = pair()
    images_BCYX = images()
    expected = reference(images_BCYX, output_attentions=True)
    torch.testing.assert_close(model.logits(model(images_BCYX)), expected.logits, atol=1e-5, rtol=1e-5)
    output: EncoderOutput = model.backbone(images_BCYX, want_attention=True)
    assert len(output.attention) == 2
    for weights_BHSS, reference_weights in zip(output.attention, expected.attentions, strict=True):
        torch.testing.assert_close(weights_BHSS, reference_weights, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_attention_rows_are_probabilities_and_change_nothing() -> None:
    encoder = VisionTransformer(config()).eval()
    images_BCYX = images()
    baseline, traced = encoder(images_BCYX), encoder(images_BCYX, want_attention=True)
    num_positions = G * G + 1
    assert baseline.attention == ()
    assert baseline.states_BSD.shape == (B, num_positions, D)
    torch.testing.assert_close(traced.states_BSD, baseline.states_BSD, atol=2e-5, rtol=1e-5)
    for weights_BHSS in traced.attention:
        torch.testing.assert_close(weights_BHSS.sum(-1), torch.ones(B, H, num_positions))


@torch.no_grad()
@pytest.mark.parametrize("class_token", [False, True])
def test_a_pixel_touches_only_its_own_patch(class_token: bool) -> None:
    embedding = PatchEmbedding(config(), class_token).eval()
    images_BCYX = images()
    before = embedding(images_BCYX)
    assert before.shape == (B, G * G + class_token, D)
    images_BCYX[1, 2, 4 * P + 3, 2 * P + 1] += 1
    changed_BS = (embedding(images_BCYX) - before).abs().amax(-1) > 1e-6
    assert changed_BS.nonzero().tolist() == [[1, 4 * G + 2 + class_token]]


@torch.no_grad()
@pytest.mark.parametrize(("positions", "is_invariant"), [("none", True), ("learned", False), ("sinusoidal", False)])
def test_only_positions_identify_a_patch(positions: str, is_invariant: bool) -> None:
    """Without them, the output is the same after two bands of patches are exchanged."""
    encoder = VisionTransformer(config(positions=positions, pooling="first")).eval()
    images_BCYX = images()
    moved = torch.cat((images_BCYX[:, :, 2 * P :], images_BCYX[:, :, : 2 * P]), 2)
    assert torch.allclose(encoder(moved).pooled_BD, encoder(images_BCYX).pooled_BD, atol=1e-5) == is_invariant


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_pooling(pooling: str) -> None:
    output = VisionTransformer(config(pooling=pooling)).eval()(images())
    states = output.states_BSD
    expected = {"first": states[:, 0], "mean": states.mean(1), "last": states[:, -1]}[pooling]
    torch.testing.assert_close(output.pooled_BD, expected)


@torch.no_grad()
def test_embedding_norm_is_on_the_sum() -> None:
    x_BSD = PatchEmbedding(config(embedding_norm=True)).eval()(images())
    torch.testing.assert_close(x_BSD, F.layer_norm(x_BSD, (D,)), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(x_BSD, PatchEmbedding(config()).eval()(images()), atol=0.1)


@torch.no_grad()
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_mlp_follows_the_formula(activation: str) -> None:
    encoder = MLPEncoder(config("mlp", activation=activation)).eval()
    function = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh")}[activation]
    images_BCYX = images()
    expected = images_BCYX.reshape(B, -1)
    for layer in encoder.layers:
        expected = function(expected @ layer.weight.T + layer.bias)  # type: ignore[operator]
    output = encoder(images_BCYX)
    assert (encoder.width, len(encoder.layers)) == (F_INNER, 2)
    torch.testing.assert_close(output.pooled_BD, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(output.states_BSD, output.pooled_BD[:, None])


@torch.no_grad()
@pytest.mark.parametrize(("size", "num_positions"), [(35, 8 * 8), (11, 2 * 2), (2, 1), (1, 1)])
def test_convolutions_follow_the_formula(size: int, num_positions: int) -> None:
    encoder = ConvolutionalEncoder(config("cnn", image_size=size)).eval()
    x = images_BCYX = torch.randn(B, C, size, size)
    layers: list[Any] = [*encoder.layers]
    for number, layer in enumerate(layers):
        x = F.conv2d(x, layer.convolution.weight, layer.convolution.bias, padding=1)
        x = F.relu(F.group_norm(x, H, layer.norm.weight, layer.norm.bias, 1e-5))
        x = F.max_pool2d(x, 2) if number < 2 and x.shape[-1] > 1 else x
    output = encoder(images_BCYX)
    assert output.states_BSD.shape == (B, num_positions, D)
    torch.testing.assert_close(output.states_BSD.mT.reshape(x.shape), x)
    torch.testing.assert_close(output.pooled_BD, x.mean((2, 3)))


def test_vit_tiny_has_the_published_size() -> None:
    settings = {"model": {"image_size": 224, "image_channels": 3, "num_labels": 1000}}
    with torch.device("meta"):
        model = build_model(build(settings, preset="vit-tiny").model)
    assert 5.7e6 < count_parameters(model) < 5.75e6


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("vit", {"patch_size": 4}, "model.patch_size=4 does not divide model.image_size=35; try 1 or 5 or 7 or 35"),
        ("vit", {"image_size": 0}, "model.family=vit needs model.image_size"),
        ("cnn", {"image_size": 0}, "model.family=cnn needs model.image_size"),
        ("mlp", {"image_size": 0}, "model.family=mlp needs model.image_size"),
        ("vit", {"positions": "rotary", "max_positions": 49}, "model.max_positions=49 is less than .* 50 positions"),
        ("cnn", {"norm_groups": 3}, "model.norm_groups=3 does not divide model.model_dim=22"),
        ("cnn", {"pooling": "first"}, "model.pooling=first has no meaning for a convolutional network"),
    ],
)
def test_impossible_settings_are_refused(family: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IMAGE_ENCODERS[family](config(family, **settings))


@pytest.mark.parametrize("family", IMAGE_ENCODERS)
def test_images_of_another_size_are_refused(family: str) -> None:
    encoder = IMAGE_ENCODERS[family](config(family))
    for shape in ((C, SIZE, SIZE + P), (1, SIZE, SIZE)):
        with pytest.raises(DataError, match=f"expected images of 3x35x35 .*, got {shape[0]}x35x{shape[2]}"):
            encoder(torch.zeros(B, *shape))


@torch.no_grad()
@pytest.mark.parametrize("family", IMAGE_ENCODERS)
def test_dropout_is_for_training_only(family: str) -> None:
    encoder = IMAGE_ENCODERS[family](config(family, dropout=0.5))
    images_BCYX = images()
    assert not torch.equal(encoder(images_BCYX).pooled_BD, encoder(images_BCYX).pooled_BD)
    encoder.eval()
    assert torch.equal(encoder(images_BCYX).pooled_BD, encoder(images_BCYX).pooled_BD)


@pytest.mark.parametrize("family", IMAGE_ENCODERS)
def test_each_encoder_learns_digits(family: str) -> None:
    settings = config(
        family, image_size=8, patch_size=2, image_channels=1, num_labels=10, model_dim=32, num_heads=4,
        feed_forward_dim=64,
        norm_groups=4,
    )  # fmt: skip
    digits = load_digits()
    images_NCYX = torch.tensor(digits.images[:300, None] / 8 - 1, dtype=torch.float32)
    label_N = torch.tensor(digits.target[:300])
    encoder = IMAGE_ENCODERS[family](settings)
    model = SequenceClassifier(settings, encoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = F.cross_entropy(model.logits(model(images_NCYX)), label_N)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.5
    assert losses[-1] < losses[0] / 3, losses


@pytest.mark.parametrize("order", ["interleaved", "concatenated"])
def test_sinusoids_of_patches_have_the_order_of_the_config(order: str) -> None:
    embedding = PatchEmbedding(config(positions="sinusoidal", sinusoidal_layout=order), class_token=True)
    assert embedding.positions is not None
    assert torch.equal(embedding.positions.weight, sinusoids(G * G + 1, D, order))
