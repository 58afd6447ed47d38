"""Export of clearhead's models to `transformers`: the same logits and tokens, and refusals by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead import bundle
from clearhead.bundle.writer import save as save_bundle
from clearhead.cli.main import main
from clearhead.config import Config, TokenizerConfig, parse
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.parameters import named_weights
from clearhead.model.registry import build_model, with_tied_names
from clearhead.tasks.text_codec import EncoderCodec
from tests.interop.folders import close, hf
from tests.training.runs import write_data

TEXTS = [
    f"The {animal} {verb} {count} times."
    for animal in ("dog", "cat")
    for verb in ("runs", "sleeps")
    for count in "1234"
]
SIZES = {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 22, "feed_forward_dim": 17, "num_heads": 11}
BERT: dict[str, Any] = {
    "family": "encoder", "norm_placement": "post", "norm_epsilon": 1e-12, "activation": "gelu", "positions": "learned",
    "max_positions": 64, "scale_embeddings": False, "embedding_norm": True, "num_segments": 2, "pooling": "first",
}  # fmt: skip


def make(
    folder: Path,
    task: str,
    kind: Any = "bpe",
    labels: Sequence[str] = (),
    decoding: Mapping[str, Any] | None = None,
    **model: Any,
) -> tuple[Config, Tokenizer, Any]:
    """Save a model with random weights and a tokenizer that clearhead trained."""
    torch.manual_seed(5)
    specials = ("<mask>",) if task == "mlm" else ()
    sizes: dict[str, Any] = {} if model.get("family") in ("vit", "cnn", "mlp") else {"max_positions": 64}
    tokenizer = Tokenizer.train(TEXTS * 3, TokenizerConfig(kind=kind, vocab_size=350, special_tokens=specials))
    if sizes:
        sizes |= {"vocab_size": tokenizer.vocab_size}
    settings = {**SIZES, **sizes, "num_labels": len(labels), **model}
    config = parse(
        {
            "task": task,
            "model": settings,
            "labels": labels,
            "decoding": decoding or {},
            "tokenizer": tokenizer.config.model_dump(),
        }
    )
    network = build_model(config.model).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    facts: dict[str, Any] = {"weights_kind": "last", "data": {}, "training": {}}
    save_bundle(
        folder,
        weights=with_tied_names(config.model, named_weights(network)),
        config=config.model_dump(mode="json"),
        tokenizer=tokenizer.to_json() if config.model.has_text else bundle.NO_TOKENIZER,
        **facts,
    )
    return config, tokenizer, network


def export(folder: Path, out: Path) -> int:
    return main(["export", str(folder), "--to", "huggingface", str(out)])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("PegasusForConditionalGeneration", {}),
        ("PegasusForConditionalGeneration", {"positions": "learned", "activation": "silu", "output_bias": True}),
        ("MarianMTModel", {"norm_placement": "post", "scale_embeddings": False}),
        ("MarianMTModel", {"norm_placement": "post", "sinusoidal_layout": "fairseq", "tied_embeddings": "target"}),
        ("T5ForConditionalGeneration", {"norm": "rms", "bias": False, "positions": "relative", "scale_attention": False,
                                        "scale_embeddings": False, "scale_output": True}),
    ],
)  # fmt: skip
def test_translators(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    config, tokenizer, network = make(tmp_path / "clearhead", "translate", **settings)
    assert export(tmp_path / "clearhead", tmp_path / "huggingface") == 0
    reference = getattr(hf, name).from_pretrained(tmp_path / "huggingface").eval()
    src_NS, tgt_NT = torch.randint(4, 200, (3, 7)), torch.randint(4, 200, (3, 5))
    src_NS[0, 4:] = 0
    with torch.inference_mode():
        expected = network.logits(network(src_NS, tgt_NT))
        close(
            reference(input_ids=src_NS, attention_mask=(src_NS != 0).long(), decoder_input_ids=tgt_NT).logits, expected
        )
    reference_tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    for text in (*TEXTS[:2], "naïve 日本"):
        assert reference_tokenizer(text)["input_ids"] == [*tokenizer.encode(text).ids, tokenizer.eos_id]
        assert reference_tokenizer.decode(tokenizer.encode(text).ids) == text
    exported_settings = reference.generation_config
    assert (exported_settings.num_beams, exported_settings.length_penalty) == (
        config.decoding.beam_size,
        config.decoding.length_penalty,
    )
    assert exported_settings.early_stopping is True


def test_a_masked_language_model_is_bert(tmp_path: Path) -> None:
    _, tokenizer, network = make(tmp_path / "clearhead", "mlm", **BERT, head="masked_lm")
    assert export(tmp_path / "clearhead", tmp_path / "huggingface") == 0
    reference = hf.BertForMaskedLM.from_pretrained(tmp_path / "huggingface").eval()
    reference_tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    batch = reference_tokenizer(["The <mask> runs."], return_tensors="pt")
    assert tokenizer.mask_id in batch["input_ids"][0].tolist()
    assert batch["input_ids"][0, 0] == tokenizer.bos_id
    with torch.inference_mode():
        expected = network.logits(network(batch["input_ids"]))
        close(reference(batch["input_ids"]).logits, expected)


@pytest.mark.parametrize(
    ("task", "settings", "named"),
    [
        (
            "translate",
            {"positions": "rotary"},
            "Pegasus cannot express model.positions=rotary (expected sinusoidal or learned); "
            "export --to ctranslate2 and export --to onnx work for this model",
        ),
        ("translate", {"norm": "rms"}, "Pegasus cannot express model.norm=rms (expected layer);"),
        (
            "translate",
            {"norm_placement": "post", "gated": True},
            "Marian cannot express model.gated=True (expected False);",
        ),
        (
            "translate",
            {"family": "lstm", "positions": "none"},
            "Hugging Face cannot express model.family=lstm (expected encoder or decoder or vit or transformer); no "
            "export format can express this model",
        ),
        (
            "lm",
            {"family": "decoder"},
            "GPT-2 cannot express model.positions=sinusoidal (expected learned), model.scale_embeddings=True "
            "(expected False); export --to ctranslate2 and export --to onnx work",
        ),
        (
            "mlm",
            {**BERT, "head": "masked_lm", "norm_placement": "pre"},
            "BERT cannot express model.norm_placement=pre (expected post); export --to onnx works",
        ),
    ],
)
def test_unsupported_settings_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, settings: dict[str, Any], named: str
) -> None:
    make(tmp_path / "clearhead", task, **settings)
    assert export(tmp_path / "clearhead", tmp_path / "huggingface") == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "huggingface").exists()


SMALL_BERT = ["num_encoder_layers=2", "model_dim=22", "feed_forward_dim=17", "num_heads=11"]


def train_bert(folder: Path, preset: str) -> None:
    """Train a narrow model with all other settings of the preset, by the command line, into `folder/mlm`."""
    data = write_data("mlm", folder / "data")
    narrow = [word for setting in SMALL_BERT for word in ("--set", f"model.{setting}")]
    arguments = ["train", str(data), "--task", "mlm", "--preset", preset, "--out", str(folder / "mlm"), *narrow]
    assert main([*arguments, "--set", "tokenizer.vocab_size=400", "--steps", "2", "--threads", "1"]) == 0


@torch.inference_mode()
def assert_same_logits(folder: Path, name: str) -> None:
    """Compare an exported folder, loaded by `transformers`, with the model that it came from."""
    assert export(folder / "clearhead", folder / "huggingface") == 0
    model = clearhead.load(folder / "clearhead")
    reference = getattr(hf, name).from_pretrained(folder / "huggingface").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "huggingface")
    texts = ["The bird eats.", "Look, a knife cuts the bread."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    rows = [EncoderCodec().add_special_tokens(model.tokenizer, model.tokenizer.encode(text).ids) for text in texts]
    assert [row[: len(rows[n])] for n, row in enumerate(batch["input_ids"].tolist())] == rows
    found, expected = reference(**batch).logits, model.network.logits(model.network(batch["input_ids"]))
    is_real = slice(None) if model.config.model.head == "classification" else batch["attention_mask"].bool()
    close(found[is_real], expected[is_real])
    if model.config.labels:
        assert tuple(reference.config.id2label.values()) == model.config.labels


@pytest.mark.parametrize("preset", ["bert-base", "bert-large"])
def test_bert_presets(tmp_path: Path, preset: str) -> None:
    train_bert(tmp_path, preset)
    (tmp_path / "mlm").rename(tmp_path / "clearhead")
    assert_same_logits(tmp_path, "BertForMaskedLM")


@pytest.mark.parametrize(
    ("task", "name"), [("classify", "BertForSequenceClassification"), ("tag", "BertForTokenClassification")]
)
def test_fine_tuned_bert_presets(tmp_path: Path, task: str, name: str) -> None:
    train_bert(tmp_path, "bert-base")
    data = write_data(task, tmp_path / "data")
    arguments = [
        "train",
        str(data),
        "--task",
        task,
        "--from",
        str(tmp_path / "mlm"),
        "--out",
        str(tmp_path / "clearhead"),
    ]
    assert main([*arguments, "--steps", "2", "--threads", "1"]) == 0
    assert_same_logits(tmp_path, name)
