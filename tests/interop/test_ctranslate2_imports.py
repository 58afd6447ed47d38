"""Imported models exported to CTranslate2 generate the same tokens there; unsupported settings are named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.errors import InteropError
from clearhead.tasks.engines import suppressed_tokens
from clearhead.tasks.language_modeling.inference import build_request
from tests.interop import folders
from tests.interop.annotated import EncoderDecoder
from tests.interop.folders import hf, save, with_random_weights
from tests.interop.test_fairseq import write_checkpoint
from tests.interop.test_families import MARIAN, T5, marian_config
from tests.interop.test_pytorch_state_dicts import SOURCE, TARGET, Seq2SeqTransformer, vocabulary_options

TEXTS = ["the dogs run.", "a dog", "the a the dog run s", "dog é ab"]
NEAR = 2e-4  # tolerance of log-probabilities
# Logit of padding, as low as in trained models: CTranslate2 gives the probability of padding to the other tokens.
UNLIKELY = -30.0
# Settings with which clearhead searches like CTranslate2.
SEARCH: dict[str, Any] = {"length_penalty_form": "length", "length_penalty": 1.0, "stopping_rule": "beam_finished"}


def imported(folder: Path, *more: str, path: str = "huggingface") -> Model:
    """Import a folder and return its model."""
    assert main(["import", str(folder / path), "--out", str(folder / "clearhead"), *more]) == 0
    return clearhead.load(folder / "clearhead")


def assert_same_translations(model: Model, out: Path, texts: Sequence[str]) -> None:
    """Export a model and compare CTranslate2's greedy and beam search, and its log-probabilities, with clearhead's."""
    assert main(["export", str(model.folder), "--to", "ctranslate2", str(out)]) == 0
    translator = ctranslate2.Translator(str(out), intra_threads=1)
    config, tokenizer, target = model.config.model, model.tokenizer, model.tokenizer.target
    end = target.token(config.eos_id)
    sources = [[tokenizer.token(token) for token in (*tokenizer.encode(text).ids, config.eos_id)] for text in texts]
    suppressed = [[target.token(token)] for token in {config.pad_id, config.decoder_start_id} - {config.eos_id}]
    for beam in (1, 4):
        expected = model.translate_many(texts, beam_size=beam, max_length="11", **SEARCH)
        found = translator.translate_batch(
            sources, beam_size=beam, length_penalty=1, suppress_sequences=suppressed, min_decoding_length=0,
            max_decoding_length=11, return_end_token=True,
        )  # fmt: skip
        outputs = [[piece for piece in one.hypotheses[0] if piece != end] for one in found]
        assert [tuple(output) for output in outputs] == [one.tokens for one in expected]
        for one, scored in zip(expected, translator.score_batch(sources, outputs), strict=True):
            log_probs = scored.log_probs[: len(one.token_log_probs)]
            assert log_probs == pytest.approx([*one.token_log_probs], abs=NEAR)
    assert any(one.tokens for one in expected)


def assert_same_continuation(model: Model, generator: ctranslate2.Generator, prompt: str, beam: int) -> None:
    """Compare the text after a prompt, and its log-probabilities, of CTranslate2 and of the model's own engine."""
    tokenizer, config = model.tokenizer, model.config.model
    settings = model.generation_settings(beam_size=beam, max_tokens=9).model_copy(update=SEARCH)
    one, end = model.generate(prompt, settings=settings), tokenizer.token(config.eos_id)
    source = [tokenizer.token(token) for token in build_request(model, tokenizer.encode(prompt).ids, settings).source]
    suppressed = [[tokenizer.token(token)] for token in suppressed_tokens(tokenizer)]
    [found] = generator.generate_batch(
        [source], beam_size=beam, length_penalty=1, suppress_sequences=suppressed, min_length=0, max_length=9,
        include_prompt_in_result=False, return_end_token=True,
    )  # fmt: skip
    output = [piece for piece in found.sequences[0] if piece != end]
    assert tuple(output) == one.tokens
    [scored] = generator.score_batch([[*source, *output, end]])
    log_probs = scored.log_probs[len(source) - 1 :][: len(one.token_log_probs)]
    assert log_probs == pytest.approx([*one.token_log_probs], abs=NEAR)


@pytest.mark.parametrize("kind", ["shared", "two vocabularies"])
def test_marian(tmp_path: Path, kind: str) -> None:
    size = folders.marian_tokenizer(tmp_path / "huggingface")
    sizes = {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": kind == "shared"}
    reference = with_random_weights(hf.MarianMTModel(marian_config(hf.MarianConfig, size, **sizes)))
    reference.final_logits_bias.normal_()[:, -1] = UNLIKELY
    save(reference, tmp_path / "huggingface")
    assert_same_translations(imported(tmp_path), tmp_path / "out", TEXTS)


def test_pegasus(tmp_path: Path) -> None:
    size = folders.t5_tokenizer(tmp_path / "huggingface")
    settings = {**MARIAN, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    save(
        with_random_weights(hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=size, **settings))),
        tmp_path / "huggingface",
    )
    assert_same_translations(imported(tmp_path), tmp_path / "out", TEXTS)


@pytest.mark.parametrize("version", ["1", "1.1", "untied"])
def test_t5(tmp_path: Path, version: str) -> None:
    size = folders.t5_tokenizer(tmp_path / "huggingface") + 3
    own = {} if version == "1" else {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    reference = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size, **T5, **own))
    if version == "untied":
        reference.lm_head.weight = nn.Parameter(torch.randn(size, 22) / 5)
    save(with_random_weights(reference), tmp_path / "huggingface")
    assert_same_translations(imported(tmp_path), tmp_path / "out", TEXTS)


@pytest.mark.parametrize("shared", [True, False])
def test_fairseq(tmp_path: Path, shared: bool) -> None:
    write_checkpoint(tmp_path, shared=shared)
    names = [word for name in ("en", "de") for word in ("--dict", str(tmp_path / "data" / f"dict.{name}.txt"))]
    model = imported(tmp_path, *names, path="checkpoints/best.pt")
    assert_same_translations(model, tmp_path / "out", ["the dogs", "a bb the dog", "g s q"])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a warning of torch's fast path
def test_torch_layers_with_final_norm(tmp_path: Path) -> None:
    reference = with_random_weights(Seq2SeqTransformer())
    with torch.no_grad():
        reference.generator.bias[1:3] = UNLIKELY
    torch.save(reference.state_dict(), tmp_path / "model.pt")
    model = imported(tmp_path, *vocabulary_options(tmp_path), path="model.pt")
    assert (model.config.model.norm_placement, model.config.model.has_final_norm) == ("post", True)
    assert_same_translations(model, tmp_path / "out", ["a b c", "g", "f a zz d d"])


def test_norms_of_the_annotated_transformer_are_refused_by_name(tmp_path: Path) -> None:
    reference = EncoderDecoder(len(SOURCE), len(TARGET), 11, 22, 17, 2)
    save_file(
        {name: tensor.contiguous() for name, tensor in reference.state_dict().items()}, tmp_path / "m.safetensors"
    )
    model = imported(tmp_path, *vocabulary_options(tmp_path), path="m.safetensors")
    with pytest.raises(
        InteropError, match=r"CTranslate2 cannot express model\.norm=sample \(expected layer or rms\)"
    ):  # it divides by n - 1
        model.export(tmp_path / "out", "ctranslate2")


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(tmp_path: Path, tied: bool) -> None:
    size = folders.gpt2_tokenizer(tmp_path / "huggingface")
    sizes = {"vocab_size": size, "n_positions": 29, "n_embd": 22, "n_layer": 3, "n_head": 11, "n_inner": 17}
    ends = {"bos_token_id": size - 1, "eos_token_id": size - 1, "tie_word_embeddings": tied}
    save(with_random_weights(hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **ends))), tmp_path / "huggingface")
    model = imported(tmp_path)
    assert main(["export", str(model.folder), "--to", "ctranslate2", str(tmp_path / "out")]) == 0
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    for prompt in ("the dog", " dog, the é", "日本 x"):
        for beam in (1, 3):
            assert_same_continuation(model, generator, prompt, beam)
    ids_NT = torch.randint(0, size, (3, 17))
    found = generator.forward_batch([[model.tokenizer.token(index) for index in row] for row in ids_NT.tolist()])
    with torch.inference_mode():
        expected_NTV = model.network.logits(model.network(ids_NT))
    torch.testing.assert_close(torch.from_numpy(np.array(found)), expected_NTV, atol=3e-4, rtol=3e-5)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("BertForMaskedLM", "encoder"),
        ("BertForTokenClassification", "encoder"),
        ("ViTForImageClassification", "vit"),
    ],
)
def test_encoders_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, family: str
) -> None:
    sizes = {"hidden_size": 22, "num_hidden_layers": 1, "num_attention_heads": 11, "intermediate_size": 17}
    if name.startswith("ViT"):
        save(hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=8, patch_size=4)), tmp_path / "huggingface")
    else:
        reference = getattr(hf, name)(hf.BertConfig(vocab_size=len(folders.BERT_TOKENS), **sizes))
        folders.bert_tokenizer(save(reference, tmp_path / "huggingface"))
    imported(tmp_path)
    capsys.readouterr()
    assert main(["export", str(tmp_path / "clearhead"), "--to", "ctranslate2", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert f"CTranslate2 cannot express model.family={family} (expected transformer or decoder), model.head=" in message
    assert "export --to onnx and export --to huggingface work for this model" in message
    assert not (tmp_path / "out").exists()
