"""Import and export of BERT: the same logits, tokens and tensors as in `transformers`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.cli.main import main
from clearhead.errors import InspectionError
from clearhead.inspection.analyses.ablation import ablation_effect
from clearhead.inspection.analyses.attribution import gradient_times_input
from clearhead.inspection.analyses.logit_lens import logit_lens
from clearhead.tasks.text_codec import EncoderCodec
from tests.interop.folders import BERT_TOKENS, TEXTS, bert_tokenizer, close, hf, save, with_random_weights

SIZES = {
    "vocab_size": len(BERT_TOKENS) + 3, "hidden_size": 22, "num_hidden_layers": 3, "num_attention_heads": 11,
    "intermediate_size": 17, "max_position_embeddings": 19,
}  # fmt: skip


def reference_folder(folder: Path, name: str, **settings: Any) -> Any:
    """Save and return a random model of a class, with a tokenizer."""
    model = with_random_weights(getattr(hf, name)(hf.BertConfig(**SIZES, **settings)))
    bert_tokenizer(save(model, folder))
    return model


def logits(model: Any, ids_NS: torch.Tensor) -> torch.Tensor:
    """Return the logits of the imported network."""
    return model.network.logits(model.network(ids_NS))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "task", "settings"),
    [
        ("BertForMaskedLM", "mlm", {}),
        ("BertForPreTraining", "mlm", {}),
        ("BertForSequenceClassification", "classify", {"hidden_act": "relu", "num_labels": 3}),
        ("BertForTokenClassification", "tag", {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "hidden_act": "gelu_new"}),
    ],
)
@torch.inference_mode()
def test_heads_have_equal_logits_and_are_exported_tensor_by_tensor(
    tmp_path: Path, name: str, task: str, settings: dict[str, Any]
) -> None:
    reference = reference_folder(tmp_path / "huggingface", name, **settings)
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    assert str(model.engine_choice) == "native"
    assert model.config.task == task
    ids_NS = torch.randint(6, 30, (3, 13))
    ids_NS[0, 7:] = 0
    expected = reference(ids_NS, (ids_NS != 0).long())
    real = (ids_NS != 0) if task != "classify" else ...
    expected_logits = expected.prediction_logits if name == "BertForPreTraining" else expected.logits
    close(logits(model, ids_NS)[real], expected_logits[real])
    assert main(["export", str(tmp_path / "clearhead"), "--to", "huggingface", str(tmp_path / "again")]) == 0
    before, after = (load_file(tmp_path / part / "model.safetensors") for part in ("huggingface", "again"))
    lost = {key for key in before if "seq_relationship" in key or ("pooler" in key and task == "mlm")}
    assert before.keys() - lost == after.keys()
    for key, tensor in after.items():
        assert torch.equal(tensor, before[key]), key
    exported = getattr(hf, name).from_pretrained(tmp_path / "again") if name != "BertForPreTraining" else None
    if exported is not None:
        close(exported.eval()(ids_NS, (ids_NS != 0).long()).logits[real], expected.logits[real])


def test_tokens_equal_transformers(tmp_path: Path) -> None:
    reference_folder(tmp_path / "huggingface", "BertModel")
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    reference, model = (
        hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface"),
        clearhead.load(tmp_path / "clearhead").tokenizer,
    )
    for text in TEXTS[:3]:
        assert EncoderCodec().add_special_tokens(model, model.encode(text).ids) == reference(text)["input_ids"]
    assert model.encode_batch(TEXTS) == [model.encode(text).ids for text in TEXTS]
    assert 4 not in model.encode(TEXTS[3]).ids  # [SEP] in a text is text
    assert model.decode(model.encode("The small dog runs").ids) == "the small dog runs"
    assert [model.token(index) for index in model.encode("dogs eating").ids] == ["▁dog", "s", "▁eat", "ing"]
    assert model.word_indices(model.encode("dogs eating .").ids) == [0, 0, 1, 1, 2]
    assert model.encode("a  dogs").offsets == [(0, 1), (3, 6), (6, 7)]
    assert set(model.special_ids) == {0, 1, 2, 3, 4, 5, *range(len(BERT_TOKENS), len(BERT_TOKENS) + 3)}
    assert main(["export", str(tmp_path / "clearhead"), "--to", "huggingface", str(tmp_path / "again")]) == 0
    exported = hf.AutoTokenizer.from_pretrained(tmp_path / "again")
    for text in TEXTS[:3]:
        assert exported(text)["input_ids"] == reference(text)["input_ids"]
    assert (exported.pad_token, exported.mask_token) == ("[PAD]", "[MASK]")


def test_embeddings_are_means_of_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = reference_folder(tmp_path / "huggingface", "BertModel")
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    capsys.readouterr()
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    batch = tokenizer(TEXTS[:3], padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = reference(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(TEXTS[:3]).encode())))
    assert main(["embed", str(tmp_path / "clearhead"), "--json"]) == 0
    lines = [json.loads(line)["embedding"] for line in capsys.readouterr().out.splitlines()]
    close(torch.tensor(lines), (states * mask).sum(1) / mask.sum(1))
    unit = clearhead.load(tmp_path / "clearhead").embed(TEXTS[0], unit=True)
    assert abs(float((unit**2).sum()) - 1) < 1e-6


def test_a_trace_has_the_attention_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference_folder(tmp_path / "huggingface", "BertModel")
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    model, text = clearhead.load(tmp_path / "clearhead"), TEXTS[1]
    trace = model.trace(text)
    reference = hf.AutoModel.from_pretrained(tmp_path / "huggingface", attn_implementation="eager").eval()
    batch = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")(text, return_tensors="pt")
    with torch.inference_mode():
        attention = reference(**batch, output_attentions=True).attentions
    assert [one.layer for one in trace.attention] == [0, 1, 2]
    for one, expected in zip(trace.attention, attention, strict=True):
        close(torch.from_numpy(one.weights_HTS), expected[0])
    assert (trace.outputs, trace.target_text, trace.log_prob) == ((), "", 0)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "clearhead"), text, "--layer", "2", "--head", "7"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(text) and "log-probability" not in shown
    off = model.with_ablated(["encoder.1.3"])
    assert abs(off.embed(text) - model.embed(text)).max() > 1e-3
    for asked in (lambda: logit_lens(model, trace), lambda: gradient_times_input(model, trace),
                  lambda: ablation_effect(model, off, trace, model.config.decoding)):  # fmt: skip
        with pytest.raises(InspectionError, match="got an embedding model"):
            asked()


def test_an_imported_model_fills_masks_and_can_be_fine_tuned(tmp_path: Path) -> None:
    reference = reference_folder(tmp_path / "huggingface", "BertForMaskedLM")
    assert main(["import", str(tmp_path / "huggingface"), "--out", str(tmp_path / "clearhead")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    best = model.fill("the [MASK] runs.", top=3)[0]
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "huggingface")
    batch = tokenizer("the [MASK] runs.", return_tensors="pt")
    with torch.inference_mode():
        expected = reference(**batch).logits[0, 2].softmax(-1)
    ids = [model.tokenizer.token_id(filling.token) for filling in best]
    assert [filling.probability for filling in best] == pytest.approx(
        [float(expected[index]) for index in ids], abs=1e-5
    )
    ranked = expected.argsort(descending=True).tolist()
    assert ids == [index for index in ranked if index not in model.tokenizer.special_ids][:3]
    examples = "".join(f"{'the big dog' if n % 2 else 'a small cat'} {'runs' * (n % 3)}\t{n % 2}\n" for n in range(40))
    (tmp_path / "data.tsv").write_text(examples)
    arguments = ["train", str(tmp_path / "data.tsv"), "--task", "classify", "--from", str(tmp_path / "clearhead")]
    arguments += ["--out", str(tmp_path / "tuned"), "--steps", "2", "--threads", "1"]
    assert main(arguments) == 0
    tuned = clearhead.load(tmp_path / "tuned")
    assert tuned.classify("the big dog").label in ("0", "1")
    assert tuned.tokenizer.to_json() == model.tokenizer.to_json()
