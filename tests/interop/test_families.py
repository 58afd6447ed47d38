"""Import and export of GPT-2, T5, Marian, Pegasus, DistilBERT and ViT of `transformers`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.tasks.trainable.seq2seq import decode_examples
from tests.interop import folders
from tests.interop.folders import assert_same_tensors, close, hf, save, with_random_weights

N, S, T = 5, 7, 6  # sentences, source length, target length


def round_trip(reference: Any, tokenizer: Callable[[Path], Any], folder: Path, same: bool = True) -> Model:
    """Save, import and export a model: the tensors must be equal, and `transformers` loads them without a warning."""
    tokenizer(save(reference, folder / "huggingface"))
    assert main(["import", str(folder / "huggingface"), "--out", str(folder / "clearhead")]) == 0
    assert main(["export", str(folder / "clearhead"), "--to", "huggingface", str(folder / "again")]) == 0
    if same:
        assert_same_tensors(folder / "huggingface", folder / "again")
    model = clearhead.load(folder / "clearhead")
    assert (model.engine_choice.name == "native") != model.config.model.reads_images
    return model


def ids(rows: int, length: int, high: int, low: int = 4) -> Tensor:
    return torch.randint(low, high, (rows, length))


def test_gpt2_gives_the_same_logits_and_continuations(tmp_path: Path) -> None:
    size = folders.gpt2_tokenizer(tmp_path / "huggingface")
    sizes = {"vocab_size": size, "n_positions": 29, "n_embd": 22, "n_layer": 3, "n_head": 11, "n_inner": 17}
    reference = with_random_weights(
        hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=size - 1, eos_token_id=size - 1))
    )
    model = round_trip(reference, folders.gpt2_tokenizer, tmp_path)
    ids_NT = ids(N, T, size)
    with torch.inference_mode():
        close(model.network.logits(model.network(ids_NT)), reference(ids_NT).logits)
        exported = hf.GPT2LMHeadModel.from_pretrained(tmp_path / "again").eval()
        close(exported(ids_NT).logits, reference(ids_NT).logits)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    for text in ("the dog", " dog, the é", "日本 x"):
        assert model.tokenizer.encode(text).ids == tokenizer(text)["input_ids"]
        assert model.tokenizer.decode(model.tokenizer.encode(text).ids) == text
        batch = tokenizer(text, return_tensors="pt")
        expected = reference.generate(**batch, max_new_tokens=9, do_sample=False, pad_token_id=size - 1)
        written = model.generate(text, max_tokens=9)  # greedy, as reference is by default
        new = expected[0, batch["input_ids"].shape[1] :].tolist()
        assert [model.tokenizer.token_id(piece) for piece in written.tokens] == [
            token for token in new if token != size - 1
        ]
    shown = model.tokenizer.encode("a dog é日")
    assert shown.tokens[:2] == ["a", "▁dog"]
    assert shown.offsets[1] == (2, 5)


def test_gpt2_is_fine_tuned_although_it_has_no_padding_token(tmp_path: Path) -> None:
    size = folders.gpt2_tokenizer(tmp_path / "huggingface")
    sizes = {"vocab_size": size, "n_positions": 29, "n_embd": 22, "n_layer": 1, "n_head": 11, "n_inner": 17}
    reference = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, tie_word_embeddings=False))
    model = round_trip(with_random_weights(reference), folders.gpt2_tokenizer, tmp_path)
    assert model.config.model.tied_embeddings == "none"
    (tmp_path / "text.txt").write_text("\n\n".join(f"the dog {'runs ' * (n % 5)}!" for n in range(30)))
    arguments = ["train", str(tmp_path / "text.txt"), "--task", "lm", "--from", str(tmp_path / "clearhead")]
    assert main([*arguments, "--out", str(tmp_path / "tuned"), "--steps", "2", "--threads", "1"]) == 0
    assert clearhead.load(tmp_path / "tuned").generate("the", max_tokens=3).tokens


def test_gpt2_samples_by_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = folders.gpt2_tokenizer(tmp_path / "huggingface")
    reference = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=size, n_positions=29, n_embd=22, n_layer=1, n_head=11))
    drawn = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}
    reference.generation_config.update(do_sample=True, max_new_tokens=11, no_repeat_ngram_size=3, **drawn)
    save(reference, tmp_path / "huggingface")
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    assert "not imported: no_repeat_ngram_size=3" in capsys.readouterr().err
    decoding = clearhead.load(tmp_path / "clearhead").config.decoding
    assert decoding.method == "sample"
    assert {name: getattr(decoding.sampling, name) for name in (*drawn, "max_tokens")} == {**drawn, "max_tokens": 11}


def assert_same_outputs(reference: Any, model: Model, high: int, **settings: Any) -> None:
    """Assert that `generate` and clearhead's search return the same outputs with the imported settings."""
    config = model.config.model
    for source_NS in (ids(N, S, high), ids(N, S + 4, high)):
        ended = torch.cat((source_NS, torch.full((N, 1), config.eos_id)), 1)
        expected = reference.generate(
            ended, attention_mask=torch.ones_like(ended), bad_words_ids=[[config.pad_id]], **settings
        )
        found = decode_examples(model.network, source_NS.tolist(), config.eos_id, model.config.decoding)
        for one, other in zip(found, expected.tolist(), strict=True):
            assert list(one) == [token for token in other[1:] if token not in (config.pad_id, config.eos_id)]


def assert_same_logits(reference: Any, model: Model, high: int) -> None:
    """Compare the logits of given targets, with padding in the source."""
    src_NS, tgt_NT = ids(N, S, high), ids(N, T, high)
    src_NS[0, 4:] = model.config.model.pad_id
    tgt_NT[:, 0] = model.config.model.decoder_start_id
    mask_NS = (src_NS != model.config.model.pad_id).long()
    with torch.inference_mode():
        expected = reference(input_ids=src_NS, attention_mask=mask_NS, decoder_input_ids=tgt_NT).logits
        close(model.network.logits(model.network(src_NS, tgt_NT)), expected)


T5 = {"d_model": 22, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11, "decoder_start_token_id": 0}


@pytest.mark.parametrize("version", ["1", "1.1", "untied"])
def test_t5(tmp_path: Path, version: str) -> None:
    size = folders.t5_tokenizer(tmp_path / "huggingface") + 3
    own = {} if version == "1" else {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    reference = hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size, **T5, **own))
    if version == "untied":
        reference.lm_head.weight = nn.Parameter(torch.randn(size, 22) / 5)
    with_random_weights(reference)
    reference.generation_config.update(num_beams=3, length_penalty=1.3, max_length=12)
    model = round_trip(reference, folders.t5_tokenizer, tmp_path)
    config = model.config.model
    assert (config.tied_embeddings, config.scale_output) == ("input" if version == "untied" else "all", version == "1")
    decoding = model.config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_length, decoding.stopping_rule) == (
        3,
        1.3,
        "11",
        "no_better_now",
    )
    assert_same_logits(reference, model, size)
    assert_same_outputs(reference, model, size, use_cache=False)  # their cache wants as many layers on both sides
    assert_same_logits(hf.T5ForConditionalGeneration.from_pretrained(tmp_path / "again").eval(), model, size)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    for text in ("the dogs run", "a  dog é. xyz"):
        assert model.tokenizer.encode(text).ids == tokenizer(text, add_special_tokens=False)["input_ids"]
    exported = hf.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert exported("the dogs")["input_ids"] == [*model.tokenizer.encode("the dogs").ids, 1]


def test_t5_with_its_sentencepiece_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = folders.t5_tokenizer(tmp_path / "truth")
    save(hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size + 4, **T5)), tmp_path / "huggingface")
    folders.write_spm(tmp_path / "huggingface" / "spiece.model", folders.UNIGRAM, specials=("<pad>", "</s>", "<unk>"))
    settings = tmp_path / "huggingface" / "tokenizer_config.json"
    settings.write_text(json.dumps({"extra_ids": 2}))
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    model, truth = (
        clearhead.load(tmp_path / "clearhead").tokenizer,
        hf.AutoTokenizer.from_pretrained(tmp_path / "truth"),
    )
    for text in ("the dogs run", "a dog é. xyz"):
        assert model.encode(text).ids == truth(text, add_special_tokens=False)["input_ids"]
    assert [model.token_id(f"<extra_id_{number}>") for number in (0, 1)] == [size + 1, size]
    settings.write_text(json.dumps({"extra_ids": 10**12}))
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "more")]) == 2
    assert "expected extra_ids below" in capsys.readouterr().err


MARIAN: dict[str, Any] = {
    "d_model": 22, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 11,
    "decoder_attention_heads": 11, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17, "max_position_embeddings": 29,
    "eos_token_id": 0, "forced_eos_token_id": None, "activation_function": "swish", "scale_embedding": True,
}  # fmt: skip


def marian_config(kind: Any, size: int, **settings: Any) -> Any:
    return kind(vocab_size=size, pad_token_id=size - 1, decoder_start_token_id=size - 1, **MARIAN, **settings)


@pytest.mark.parametrize("stop", [False, True, "never"])
def test_marian(tmp_path: Path, stop: bool | str) -> None:
    size = folders.marian_tokenizer(tmp_path / "huggingface")
    reference = with_random_weights(hf.MarianMTModel(marian_config(hf.MarianConfig, size, decoder_vocab_size=size)))
    reference.final_logits_bias.normal_()
    reference.generation_config.update(num_beams=4, length_penalty=0.7, max_length=16, early_stopping=stop)
    model = round_trip(reference, folders.marian_tokenizer, tmp_path, same=False)
    assert model.config.model.output_bias
    assert_same_logits(reference, model, size - 1)
    assert_same_outputs(reference, model, size - 2)
    translated_text = model.translate("the dogs run.")
    assert translated_text.text == model.tokenizer.target.decode(
        [model.tokenizer.target.token_id(piece) for piece in translated_text.tokens]  # type: ignore[misc]
    )
    exported = hf.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    assert_same_logits(exported, model, size - 1)
    for name, tensor in reference.state_dict().items():
        assert torch.equal(exported.state_dict()[name], tensor), name


def test_marian_with_two_vocabularies(tmp_path: Path) -> None:
    size = folders.marian_tokenizer(tmp_path / "huggingface")
    settings = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": size}
    reference = with_random_weights(hf.MarianMTModel(marian_config(hf.MarianConfig, size, **settings)))
    model = round_trip(reference, folders.marian_tokenizer, tmp_path, same=False)
    assert model.config.model.tied_embeddings == "target"
    assert_same_logits(reference, model, size - 1)
    assert_same_logits(hf.MarianMTModel.from_pretrained(tmp_path / "again").eval(), model, size - 1)


def test_marian_with_more_positions_than_fit_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = folders.marian_tokenizer(tmp_path / "huggingface")
    save(hf.MarianMTModel(marian_config(hf.MarianConfig, size, decoder_vocab_size=size)), tmp_path / "huggingface")
    settings = json.loads((tmp_path / "huggingface" / "config.json").read_text())
    (tmp_path / "huggingface" / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 10**12}))
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 2
    assert "model.max_positions=1000000000000: input should be less than or equal to 1000000" in capsys.readouterr().err


def test_marian_tokens(tmp_path: Path) -> None:
    size = folders.marian_tokenizer(tmp_path / "huggingface")
    reference = hf.MarianMTModel(marian_config(hf.MarianConfig, size, decoder_vocab_size=size))
    tokenizer = round_trip(reference, folders.marian_tokenizer, tmp_path, same=False).tokenizer
    assert tokenizer.encode("the  dogs").tokens == ["▁the", "▁dog", "s"]
    assert tokenizer.encode("the  dogs").offsets == [(0, 3), (5, 8), (8, 9)]
    assert tokenizer.target.encode("ein hund").tokens == ["▁ein", "▁hund"]
    tagged = tokenizer.encode(">>deu<< the dog")
    assert (tagged.tokens, tagged.offsets) == ([">>deu<<", "▁the", "▁dog"], [(0, 8), (8, 11), (12, 15)])
    assert tokenizer.encode("the </s>").ids.count(0) == 0
    assert tokenizer.target.decode(tokenizer.target.encode("ein hund.").ids) == "ein hund."
    assert tokenizer.encode_batch([">>deu<< the dog", "a"]) == [tagged.ids, tokenizer.encode("a").ids]


def test_pegasus_is_the_pre_norm_counterpart(tmp_path: Path) -> None:
    size = folders.t5_tokenizer(tmp_path / "huggingface")
    settings = {**MARIAN, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    reference = with_random_weights(hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=size, **settings)))
    model = round_trip(reference, folders.t5_tokenizer, tmp_path)
    assert (model.config.model.norm_placement, model.config.model.sinusoidal_layout) == ("pre", "concatenated")
    assert_same_logits(reference, model, size)
    assert_same_logits(hf.PegasusForConditionalGeneration.from_pretrained(tmp_path / "again").eval(), model, size)


@pytest.mark.parametrize(
    "name", ["DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForTokenClassification"]
)
def test_distilbert(tmp_path: Path, name: str) -> None:
    sizes = {"dim": 22, "n_layers": 2, "n_heads": 11, "hidden_dim": 17, "max_position_embeddings": 19}
    config = hf.DistilBertConfig(vocab_size=len(folders.BERT_TOKENS), **sizes)
    reference = with_random_weights(getattr(hf, name)(config))
    model = round_trip(reference, folders.bert_tokenizer, tmp_path)
    ids_NS = ids(N, S, 30, low=6)
    network = model.network
    with torch.inference_mode():
        close(network.logits(network(ids_NS)), reference(ids_NS, torch.ones_like(ids_NS)).logits)


@pytest.mark.parametrize("colours", [1, 3])
def test_vit(tmp_path: Path, colours: int) -> None:
    sizes = {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 11, "intermediate_size": 17}
    config = hf.ViTConfig(
        **sizes, image_size=12, patch_size=4, num_channels=colours, id2label={0: "cat", 1: "dog", 2: "x"}
    )
    reference = with_random_weights(hf.ViTForImageClassification(config))
    model = round_trip(reference, lambda folder: None, tmp_path)
    assert model.config.labels == ("cat", "dog", "x")
    pictures_NCYX = torch.randn(N, colours, 12, 12)
    with torch.inference_mode():
        close(model.network.logits(model.network(pictures_NCYX)), reference(pictures_NCYX).logits)
        exported = hf.ViTForImageClassification.from_pretrained(tmp_path / "again").eval()
        close(exported(pictures_NCYX).logits, reference(pictures_NCYX).logits)
