"""Models of our own as folders of `transformers`: the same logits, the same pieces, and refusals by name."""

from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead import bundle
from clearhead.cli.main import main
from clearhead.config import Config, TokenizerConfig, parse
from clearhead.data.tokenizer import Tokenizer
from clearhead.model.families import build_model
from clearhead.model.weights import named_weights
from tests.interop.folders import close, hf

TEXTS = [
    f"The {animal} {verb} {count} times."
    for animal in ("dog", "cat")
    for verb in ("runs", "sleeps")
    for count in "1234"
]
SIZES = {"num_encoder_layers": 2, "num_decoder_layers": 3, "model_dim": 22, "inner_dim": 17, "num_heads": 11}
BERT = {
    "family": "encoder", "norm_placement": "post", "norm_epsilon": 1e-12, "activation": "gelu", "positions": "learned",
    "max_positions": 64, "scale_embeddings": False, "embedding_norm": True, "num_segments": 2, "pooling": "first",
}  # fmt: skip


def make(folder: Path, task: str, **model: Any) -> tuple[Config, Tokenizer, Any]:
    """A bundle with random weights and a tokenizer of ours."""
    specials = ("<mask>",) if task == "mlm" else ()
    tokenizer = Tokenizer.train(TEXTS * 3, TokenizerConfig(vocab_size=350, specials=specials))
    settings = {**SIZES, "max_positions": 64, **model, "vocab_size": tokenizer.vocab_size}
    config = parse({"task": task, "model": settings, "tokenizer": tokenizer.config.model_dump()})
    network = build_model(config.model).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    facts: dict[str, Any] = {"weights_kind": "last", "data": {}, "training": {}}
    bundle.save(
        folder,
        weights=named_weights(network),
        config=config.model_dump(mode="json"),
        tokenizer=tokenizer.to_json(),
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
        ("MarianMTModel", {"norm_placement": "post", "sinusoids": "fairseq", "embeddings": "output"}),
        ("T5ForConditionalGeneration", {"norm": "rms", "bias": False, "positions": "relative", "scale_attention": False,
                                        "scale_embeddings": False, "scale_output": True}),
    ],
)  # fmt: skip
def test_translators(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    config, tokenizer, network = make(tmp_path / "ours", "translate", **settings)
    assert export(tmp_path / "ours", tmp_path / "theirs") == 0
    theirs = getattr(hf, name).from_pretrained(tmp_path / "theirs").eval()
    src_NS, tgt_NT = torch.randint(4, 200, (3, 7)), torch.randint(4, 200, (3, 5))
    src_NS[0, 4:] = 0
    with torch.inference_mode():
        expected = network.logits(network(src_NS, tgt_NT))
        close(theirs(input_ids=src_NS, attention_mask=(src_NS != 0).long(), decoder_input_ids=tgt_NT).logits, expected)
    pieces = hf.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    for text in (*TEXTS[:2], "naïve 日本"):
        assert pieces(text)["input_ids"] == [*tokenizer.encode(text).ids, tokenizer.eos_id]
        assert pieces.decode(tokenizer.encode(text).ids) == text
    settings_there = theirs.generation_config
    assert (settings_there.num_beams, settings_there.length_penalty) == (config.decoding.beam, config.decoding.alpha)
    assert settings_there.early_stopping is True


def test_an_encoder_for_masked_words_is_bert(tmp_path: Path) -> None:
    _, tokenizer, network = make(tmp_path / "ours", "mlm", **BERT, head="masked")
    assert export(tmp_path / "ours", tmp_path / "theirs") == 0
    theirs = hf.BertForMaskedLM.from_pretrained(tmp_path / "theirs").eval()
    pieces = hf.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    batch = pieces(["The <mask> runs."], return_tensors="pt")
    assert tokenizer.mask_id in batch["input_ids"][0].tolist()
    assert batch["input_ids"][0, 0] == tokenizer.bos_id
    with torch.inference_mode():
        expected = network.logits(network.hidden(network.reader(batch["input_ids"]).states_BSD))
        close(theirs(batch["input_ids"]).logits, expected)


@pytest.mark.parametrize(
    ("task", "settings", "named"),
    [
        ("translate", {"positions": "rotary"}, "Pegasus cannot hold model.positions=rotary"),
        ("translate", {"norm": "rms"}, "Pegasus cannot hold model.norm=rms"),
        ("translate", {"norm_placement": "post", "gated": True}, "Marian cannot hold model.gated=True"),
        ("translate", {"family": "lstm", "positions": "none"}, "model.family=lstm has no counterpart"),
        ("lm", {"family": "decoder"}, "GPT-2 cannot hold model.positions=sinusoidal"),
        ("mlm", {**BERT, "head": "masked", "norm_placement": "pre"}, "BERT cannot hold model.norm_placement=pre"),
    ],
)
def test_what_they_lack_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, settings: dict[str, Any], named: str
) -> None:
    make(tmp_path / "ours", task, **settings)
    assert export(tmp_path / "ours", tmp_path / "theirs") == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "theirs").exists()
