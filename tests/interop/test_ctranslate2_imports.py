"""Imported models under CTranslate2: they write what they write under torch; what has no place there is named."""

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
from clearhead.errors import DecodingError, InteropError
from tests.interop import folders
from tests.interop.annotated import EncoderDecoder
from tests.interop.folders import hf, save, shaken
from tests.interop.test_fairseq import write_checkpoint
from tests.interop.test_families import MARIAN, T5, marian_config
from tests.interop.test_torch_layouts import SOURCE, TARGET, Seq2SeqTransformer, given

TEXTS = ["the dogs run.", "a dog", "the a the dog run s", "dog é ab"]
NEAR = 2e-4  # in log-probability
UNLIKELY = -30.0  # logit of padding, as in trained models: CTranslate2 shares out what is never written, torch does not


def imported(folder: Path, *more: str, path: str = "theirs") -> Model:
    """The model of a folder of theirs."""
    assert main(["import", str(folder / path), "--out", str(folder / "ours"), *more]) == 0
    return clearhead.load(folder / "ours")


def same_translations(model: Model, texts: Sequence[str], **settings: Any) -> None:
    """Greedy and with a beam, by both engines, with the log-probability of every piece."""
    for beam in (1, 4):
        wanted = {"beam_size": beam, "stopping_rule": "beam_finished", "max_length": "11", **settings}
        ours = model.translate_many(texts, **wanted)
        fast = model.translate_many(texts, engine="ctranslate2", **wanted)
        assert [one.tokens for one in fast] == [one.tokens for one in ours]
        assert [one.text for one in fast] == [one.text for one in ours]
        for one, other in zip(ours, fast, strict=True):
            assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=NEAR)
    assert any(one.tokens for one in ours)


def same_folder(model: Model, out: Path, texts: Sequence[str]) -> None:
    """What `export` writes, read by the library alone, with the pieces of our tokenizer."""
    assert main(["export", str(model.folder), "--to", "ctranslate2", str(out)]) == 0
    translator = ctranslate2.Translator(str(out), intra_threads=1)
    config, written = model.config.model, model.tokenizer.target
    end = model.tokenizer.piece(config.eos_id)
    sources = [[*model.tokenizer.encode(text).pieces, end] for text in texts]
    never = [[written.piece(token)] for token in {config.pad_id, config.decoder_start_id} - {config.eos_id}]
    lengths = {"min_decoding_length": 0, "max_decoding_length": 11}
    found = translator.translate_batch(sources, beam_size=1, suppress_sequences=never, **lengths)
    expected = model.translate_many(texts, beam_size=1, stopping_rule="beam_finished", max_length="11")
    assert [tuple(one.hypotheses[0]) for one in found] == [one.tokens for one in expected]


@pytest.mark.parametrize("kind", ["shared", "two vocabularies"])
def test_marian(tmp_path: Path, kind: str) -> None:
    size = folders.marian_tokenizer(tmp_path / "theirs")
    sizes = {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": kind == "shared"}
    theirs = shaken(hf.MarianMTModel(marian_config(hf.MarianConfig, size, **sizes)))
    theirs.final_logits_bias.normal_()[:, -1] = UNLIKELY
    theirs.generation_config.update(num_beams=4, early_stopping=False)
    save(theirs, tmp_path / "theirs")
    model = imported(tmp_path)
    same_translations(model, TEXTS)
    same_folder(model, tmp_path / "out", TEXTS)
    with pytest.raises(DecodingError, match=r"cannot honour decoding\.stopping_rule=no_better_now"):
        model.translate(TEXTS[0], engine="ctranslate2")


def test_pegasus(tmp_path: Path) -> None:
    size = folders.t5_tokenizer(tmp_path / "theirs")
    settings = {**MARIAN, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    save(shaken(hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=size, **settings))), tmp_path / "theirs")
    same_translations(imported(tmp_path), TEXTS)


@pytest.mark.parametrize("version", ["1", "1.1", "untied"])
def test_t5(tmp_path: Path, version: str) -> None:
    size = folders.t5_tokenizer(tmp_path / "theirs") + 3
    own = {} if version == "1" else {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    theirs = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size, **T5, **own))
    if version == "untied":
        theirs.lm_head.weight = nn.Parameter(torch.randn(size, 22) / 5)
    save(shaken(theirs), tmp_path / "theirs")
    model = imported(tmp_path)
    same_translations(model, TEXTS)
    same_folder(model, tmp_path / "out", TEXTS)


@pytest.mark.parametrize("shared", [True, False])
def test_fairseq(tmp_path: Path, shared: bool) -> None:
    write_checkpoint(tmp_path, shared=shared)
    names = [word for name in ("en", "de") for word in ("--dict", str(tmp_path / "data" / f"dict.{name}.txt"))]
    model = imported(tmp_path, *names, path="checkpoints/best.pt")
    texts = ["the dogs", "a bb the dog", "g s q"]
    same_translations(model, texts)
    same_folder(model, tmp_path / "out", texts)
    by_default = [
        model.translate_many(texts, engine=engine) for engine in ("torch", "ctranslate2")
    ]  # beam 5, as theirs
    assert [one.text for one in by_default[0]] == [one.text for one in by_default[1]]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch on a fast path of its own
def test_layers_of_torch_with_a_norm_behind_post_norm(tmp_path: Path) -> None:
    theirs = shaken(Seq2SeqTransformer())
    with torch.no_grad():
        theirs.generator.bias[1:3] = UNLIKELY
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    model = imported(tmp_path, *given(tmp_path), path="model.pt")
    assert (model.config.model.norm_placement, model.config.model.has_final_norm) == ("post", True)
    same_translations(model, ["a b c", "g", "f a zz d d"])


def test_norms_of_the_annotated_transformer_are_refused_by_name(tmp_path: Path) -> None:
    theirs = EncoderDecoder(len(SOURCE), len(TARGET), 11, 22, 17, 2)
    save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, tmp_path / "m.safetensors")
    model = imported(tmp_path, *given(tmp_path), path="m.safetensors")
    with pytest.raises(
        InteropError, match=r"CTranslate2 cannot express model\.norm=sample \(expected layer or rms\)"
    ):  # it divides by n - 1
        model.translate("a b c", engine="ctranslate2")


@pytest.mark.parametrize("tied", [True, False])
def test_gpt2(tmp_path: Path, tied: bool) -> None:
    size = folders.gpt2_tokenizer(tmp_path / "theirs")
    sizes = {"vocab_size": size, "n_positions": 29, "n_embd": 22, "n_layer": 3, "n_head": 11, "n_inner": 17}
    ends = {"bos_token_id": size - 1, "eos_token_id": size - 1, "tie_word_embeddings": tied}
    save(shaken(hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **ends))), tmp_path / "theirs")
    model = imported(tmp_path)
    prompts = ["the dog", " dog, the é", "日本 x"]
    searched = model.writing(beam_size=3, max_tokens=9).model_copy(update={"stopping_rule": "beam_finished"})
    for settings in (model.writing(max_tokens=9), searched):
        ours, fast = (model.generate_many(prompts, engine=engine, settings=settings)
                      for engine in ("torch", "ctranslate2"))  # fmt: skip
        assert [one.tokens for one in fast] == [one.tokens for one in ours]
        for one, other in zip(ours, fast, strict=True):
            assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=NEAR)
    assert main(["export", str(model.folder), "--to", "ctranslate2", str(tmp_path / "out")]) == 0
    generator = ctranslate2.Generator(str(tmp_path / "out"), intra_threads=1)
    ids_NT = torch.randint(0, size, (3, 17))
    found = generator.forward_batch([[model.tokenizer.piece(index) for index in row] for row in ids_NT.tolist()])
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
def test_readers_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, family: str
) -> None:
    sizes = {"hidden_size": 22, "num_hidden_layers": 1, "num_attention_heads": 11, "intermediate_size": 17}
    if name.startswith("ViT"):
        save(hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=8, patch_size=4)), tmp_path / "theirs")
    else:
        theirs = getattr(hf, name)(hf.BertConfig(vocab_size=len(folders.BERT_PIECES), **sizes))
        folders.bert_tokenizer(save(theirs, tmp_path / "theirs"))
    imported(tmp_path)
    capsys.readouterr()
    assert main(["export", str(tmp_path / "ours"), "--to", "ctranslate2", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert f"CTranslate2 cannot express model.family={family} (expected transformer or decoder), model.head=" in message
    assert "export --to onnx and export --to huggingface work for this model" in message
    assert not (tmp_path / "out").exists()
