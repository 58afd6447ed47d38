"""Export to a Hugging Face folder and import of it: the same outputs, tokens, labels and decoding settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.tasks.masked_lm.inference import encode_with_masks
from clearhead.tasks.text_codec import EncoderCodec
from tests.interop import folders
from tests.interop.folders import close, hf, save, with_random_weights
from tests.interop.test_export import BERT, TEXTS, make

LABELS = ("good", 'bad: "very"', "日本")
PROBES = (*TEXTS[:2], "dogs, naïve 日本 <s> x", " The  dog")
T5: dict[str, Any] = {
    "norm": "rms",
    "bias": False,
    "positions": "relative",
    "scale_attention": False,
    "scale_embeddings": False,
}
GPT2: dict[str, Any] = {
    "family": "decoder",
    "positions": "learned",
    "scale_embeddings": False,
    "activation": "gelu_tanh",
}
VIT: dict[str, Any] = {"family": "vit", "head": "classification", "positions": "learned", "pooling": "first",
                       "image_size": 12, "patch_size": 4, "image_channels": 3}  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BERT, masked words": ("mlm", "BertForMaskedLM", {**BERT, "head": "masked_lm", "pooler": True}),
    "BERT, labels": ("classify", "BertForSequenceClassification", {**BERT, "head": "classification", "pooler": True}),
    "BERT, tags": ("tag", "BertForTokenClassification", {**BERT, "head": "token_classification", "activation": "relu"}),
    "BERT without segments": ("tag", "BertForTokenClassification", {**BERT, "head": "token_classification",
                                                                  "norm_epsilon": 1e-5, "num_segments": 0}),
    "BERT, vectors": ("embed", "BertModel", {**BERT, "head": "embedding"}),
    "DistilBERT, masked words": ("mlm", "DistilBertForMaskedLM", {**BERT, "head": "masked_lm", "num_segments": 0}),
    "DistilBERT, labels": ("classify", "DistilBertForSequenceClassification", {**BERT, "head": "classification",
                                                                               "pooler": True,
                                                                    "pooler_activation": "relu", "num_segments": 0}),
    "GPT-2": ("lm", "GPT2LMHeadModel", GPT2),
    "GPT-2, untied": ("lm", "GPT2LMHeadModel", {**GPT2, "tied_embeddings": "none"}),
    "Pegasus": ("translate", "PegasusForConditionalGeneration", {}),
    "Marian": ("translate", "MarianMTModel", {"norm_placement": "post", "output_bias": True}),
    "Marian, learned positions": ("translate", "MarianMTModel", {"norm_placement": "post", "positions": "learned"}),
    "T5": ("translate", "T5ForConditionalGeneration", {**T5, "scale_output": True}),
    "T5, gated": ("translate", "T5ForConditionalGeneration", {**T5, "gated": True, "activation": "gelu_tanh"}),
    "T5, own output": ("translate", "T5ForConditionalGeneration", {**T5, "tied_embeddings": "input"}),
    "T5, own output, scaled": ("translate", "T5ForConditionalGeneration", {**T5, "tied_embeddings": "input",
                                                                           "scale_output": True}),
    "ViT": ("image", "ViTForImageClassification", VIT),
}  # fmt: skip


def export_and_import(folder: Path) -> Model:
    """Export `folder/clearhead`, import it again and load the result."""
    assert main(["export", str(folder / "clearhead"), "--to", "huggingface", str(folder / "huggingface")]) == 0
    assert main(["import", str(folder / "huggingface"), "--out", str(folder / "again")]) == 0
    return clearhead.load(folder / "again")


@torch.inference_mode()
def outputs(model: Model, vocabulary: int = 90) -> Tensor:
    """Return the logits or vectors of padded inputs."""
    torch.manual_seed(7)
    network, config = model.network, model.config.model
    if not config.has_text:
        images = torch.randn(3, config.image_channels, config.image_size, config.image_size)
        return network.logits(network(images))  # type: ignore[no-any-return]
    ids_NS = torch.randint(5, vocabulary, (3, 11))
    if config.family == "decoder":
        return network.logits(network(ids_NS))  # type: ignore[no-any-return]
    ids_NS[1, 6:] = config.pad_id
    if config.family == "transformer":
        return network.logits(network(ids_NS, torch.randint(5, vocabulary, (3, 7))))  # type: ignore[no-any-return]
    if config.head == "embedding":
        return network.backbone(ids_NS).states_BSD  # type: ignore[no-any-return]
    return network.logits(network(ids_NS))  # type: ignore[no-any-return]


def ids_with_special_tokens(model: Model, text: str) -> list[int]:
    """Return the ids of a text with the special tokens that the network expects."""
    ids = model.tokenizer.encode(text).ids
    if model.config.model.head != "generation":
        return EncoderCodec().add_special_tokens(model.tokenizer, ids)
    if model.config.model.family == "transformer":
        return [*ids, model.tokenizer.eos_id]
    return [model.tokenizer.bos_id, *ids]


@pytest.mark.parametrize("case", CASES)
def test_every_architecture(tmp_path: Path, case: str) -> None:
    task, architecture, settings = CASES[case]
    labels = LABELS if task in ("classify", "tag", "image") else ()
    make(tmp_path / "clearhead", task, labels=labels, **settings)
    before, after = clearhead.load(tmp_path / "clearhead"), export_and_import(tmp_path)
    assert json.loads((tmp_path / "huggingface" / "config.json").read_text())["architectures"] == [architecture]
    assert torch.equal(outputs(after), outputs(before))
    assert (after.config.task, after.config.labels) == (task, before.config.labels)
    if before.config.model.has_text:
        assert after.tokenizer.to_json() == before.tokenizer.to_json()
        reference = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
        for text in TEXTS[:3]:
            assert reference(text)["input_ids"] == ids_with_special_tokens(before, text)
            assert reference.decode(reference(text)["input_ids"], skip_special_tokens=True) == text
    loaded, info = getattr(hf, architecture).from_pretrained(tmp_path / "huggingface", output_loading_info=True)
    assert not info["unexpected_keys"] and info["missing_keys"] <= {"pooler.dense.weight", "pooler.dense.bias"}
    same_as_transformers(loaded.eval(), before)


@torch.inference_mode()
def same_as_transformers(reference: Any, model: Model) -> None:
    """Compare logits; those of encoder-decoders are compared in test_export."""
    torch.manual_seed(7)
    config = model.config.model
    if not config.has_text:
        pixels = torch.randn(3, config.image_channels, config.image_size, config.image_size)
        return close(reference(pixels).logits, outputs(model))
    ids_NS = torch.randint(5, 90, (3, 11))
    if config.family == "decoder":
        return close(reference(ids_NS).logits, outputs(model))
    ids_NS[1, 6:] = config.pad_id
    real_NS = ids_NS != config.pad_id
    if config.family == "transformer":
        targets = torch.randint(5, 90, (3, 7))
        found = reference(input_ids=ids_NS, attention_mask=real_NS.long(), decoder_input_ids=targets)
        return close(found.logits, outputs(model))
    found = reference(ids_NS, attention_mask=real_NS.long())
    reference_outputs, expected = found.logits if "logits" in found else found.last_hidden_state, outputs(model)
    if config.head == "classification":
        return close(reference_outputs, expected)
    return close(reference_outputs[real_NS], expected[real_NS])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char", "pretokenized"])
@pytest.mark.parametrize("task", ["mlm", "translate"])
def test_every_tokenizer(tmp_path: Path, task: str, kind: str) -> None:
    settings: dict[str, Any] = {**BERT, "head": "masked_lm"} if task == "mlm" else {}
    make(tmp_path / "clearhead", task, kind=kind, **settings)
    before, after = clearhead.load(tmp_path / "clearhead"), export_and_import(tmp_path)
    assert after.config.tokenizer == before.config.tokenizer
    for text in PROBES:
        assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
        ids = before.tokenizer.encode(text).ids
        assert after.tokenizer.decode(ids) == before.tokenizer.decode(ids)
    reference = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    for text in TEXTS[:3]:
        assert reference(text)["input_ids"] == ids_with_special_tokens(before, text)
    if task == "mlm":
        for text in ("The <mask> runs.", "<mask> dog runs 2 <mask>."):
            assert reference(text)["input_ids"] == EncoderCodec().add_special_tokens(
                before.tokenizer, encode_with_masks(before.tokenizer, text)
            )


def test_decoding_settings(tmp_path: Path) -> None:
    decoding = {
        "beam_size": 3,
        "length_penalty_form": "gnmt",
        "length_penalty": 0.7,
        "max_length": "input+7",
        "no_repeat_ngram_size": 3,
    }
    make(tmp_path / "clearhead", "translate", decoding=decoding)
    before, after = clearhead.load(tmp_path / "clearhead"), export_and_import(tmp_path)
    assert after.config.decoding == before.config.decoding
    assert after.translate(TEXTS[0]) == before.translate(TEXTS[0])
    assert hf.GenerationConfig.from_pretrained(tmp_path / "huggingface").num_beams == 3


def test_edited_decoding_settings_are_read(tmp_path: Path) -> None:
    drawn = {"temperature": 0.7, "top_k": 5, "min_p": 0.1, "add_start_token": True}
    make(tmp_path / "clearhead", "lm", decoding={"method": "sample", "sampling": drawn}, **GPT2)
    before, after = clearhead.load(tmp_path / "clearhead"), export_and_import(tmp_path)
    assert after.config.decoding == before.config.decoding
    assert after.generate("The dog", seed=3).text == before.generate("The dog", seed=3).text
    path = tmp_path / "huggingface" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 1.3}))
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "edited")]) == 0
    edited = clearhead.load(tmp_path / "edited").config.decoding.sampling
    assert edited.model_dump() == before.config.decoding.sampling.model_copy(update={"temperature": 1.3}).model_dump()


def test_folder_that_transformers_saved_again(tmp_path: Path) -> None:
    make(tmp_path / "clearhead", "mlm", **BERT, head="masked_lm")
    before = clearhead.load(tmp_path / "clearhead")
    export_and_import(tmp_path)
    hf.BertForMaskedLM.from_pretrained(tmp_path / "huggingface").save_pretrained(tmp_path / "saved")
    hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface").save_pretrained(tmp_path / "saved")
    assert main(["import", str(tmp_path / "saved"), "--out", str(tmp_path / "model again")]) == 0
    after = clearhead.load(tmp_path / "model again")
    assert torch.equal(outputs(after), outputs(before))
    assert [after.tokenizer.encode(text).ids for text in TEXTS] == [before.tokenizer.encode(text).ids for text in TEXTS]


SIDES = {f"{side}_{name}": value for side in ("encoder", "decoder")
         for name, value in (("attention_heads", 11), ("ffn_dim", 17), ("layers", 2))}  # fmt: skip


def t5_spiece(folder: Path) -> int:
    """Write T5's tokenizer as a SentencePiece model."""
    folders.write_spm(folder / "spiece.model", folders.UNIGRAM, specials=("<pad>", "</s>", "<unk>"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 2}))
    return len(folders.UNIGRAM) + 5


def bert_vocab(folder: Path) -> int:
    """Write BERT's vocab.txt."""
    folders.bert_tokenizer(folder)
    return len(folders.BERT_TOKENS)


FOREIGN: dict[str, tuple[str, Callable[[Path], int], dict[str, Any]]] = {
    "BERT": ("Bert:ForMaskedLM", bert_vocab, {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 11,
                                             "intermediate_size": 17, "max_position_embeddings": 19}),
    "DistilBERT": ("DistilBert:ForTokenClassification", bert_vocab, {"dim": 22, "n_layers": 2, "n_heads": 11,
                                                                    "hidden_dim": 17, "max_position_embeddings": 19}),
    "GPT-2": ("GPT2:LMHeadModel", folders.gpt2_tokenizer,
              {"n_positions": 29, "n_embd": 22, "n_layer": 2, "n_head": 11}),
    "T5": ("T5:ForConditionalGeneration", folders.t5_tokenizer, {"d_model": 22, "d_kv": 5, "d_ff": 17, "num_layers": 2,
                                                                "num_heads": 3}),
    "T5 with spiece.model": ("T5:ForConditionalGeneration", t5_spiece, {"d_model": 22, "d_kv": 5, "d_ff": 17,
                                                                       "num_layers": 2, "num_heads": 3}),
    "Pegasus": ("Pegasus:ForConditionalGeneration", folders.t5_tokenizer,
                {"d_model": 22, **SIDES, "max_position_embeddings": 29}),
    "Marian": ("Marian:MTModel", folders.marian_tokenizer, {"d_model": 22, **SIDES, "max_position_embeddings": 29,
                                                           "eos_token_id": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_imported_models(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    names, write_tokenizer, sizes = FOREIGN[name]
    family, _, kind = names.partition(":")
    (tmp_path / "foreign").mkdir()
    size = write_tokenizer(tmp_path / "foreign")
    if name == "Marian":
        sizes = sizes | {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "decoder_vocab_size": size}
    config = getattr(hf, f"{family}Config")(vocab_size=size, **sizes)
    save(with_random_weights(getattr(hf, f"{family}{kind}")(config)), tmp_path / "foreign")
    assert main(["import", str(tmp_path / "foreign"), "--out", str(tmp_path / "clearhead")]) == 0
    before, after = clearhead.load(tmp_path / "clearhead"), export_and_import(tmp_path)
    assert ("copy the original files for transformers" in capsys.readouterr().err) == (name in OWN_FILES)
    assert (tmp_path / "huggingface" / "clearhead_tokenizer.json").exists() == (name in OWN_FILES)
    for text in (*folders.TEXTS, "the dogs run.", "ein hund"):
        assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
        assert after.tokenizer.target.encode(text) == before.tokenizer.target.encode(text)
    assert after.config.model == before.config.model
    assert after.config.decoding == before.config.decoding
    assert torch.equal(outputs(after, size), outputs(before, size))
    if before.config.task == "translate":
        assert after.translate("the dogs run.") == before.translate("the dogs run.")


OWN_FILES = {"Marian", "T5 with spiece.model"}
