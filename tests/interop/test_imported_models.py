"""Imported models of each family: the command of the task, evaluation, a trace, fine-tuning, and export.

The attention of a trace is compared with that of `transformers`.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import clearhead
from clearhead.api import Model
from clearhead.cli.main import main
from clearhead.inspection.trace.trace_input import image_input
from clearhead.tasks.registry import get_task
from tests.interop import folders
from tests.interop.annotated import EncoderDecoder
from tests.interop.folders import BERT_TOKENS, close, hf, save, with_random_weights
from tests.interop.test_fairseq import write_checkpoint
from tests.interop.test_families import MARIAN, T5, marian_config
from tests.interop.test_pytorch_state_dicts import SOURCE, TARGET, Seq2SeqTransformer, vocabulary_options

LABELS = {0: "cat", 1: "dog", 2: "x"}
TAGS = {0: "O", 1: "B-X", 2: "I-X"}
SIZES = {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 11, "intermediate_size": 17}
DISTIL = {"dim": 22, "n_layers": 2, "n_heads": 11, "hidden_dim": 17, "max_position_embeddings": 29}
GPT2 = {"n_positions": 29, "n_embd": 22, "n_layer": 2, "n_head": 11, "n_inner": 17}
ATTENTION = {"encoder": ("encoder_attentions", "attentions"), "decoder": ("decoder_attentions", "attentions"),
             "cross": ("cross_attentions",)}  # fmt: skip

Checkpoint = tuple[Any, list[str]]
"""A reference model, None if it has no attention to compare, and the arguments of `import`."""


def bert(name: str, **settings: Any) -> Callable[[Path], Checkpoint]:
    """Return a function that saves BERT or DistilBERT with a head."""

    def make(folder: Path) -> Checkpoint:
        size = {"vocab_size": len(BERT_TOKENS), **settings}
        if name.startswith("Distil"):
            config = hf.DistilBertConfig(**DISTIL, **size)
        else:
            config = hf.BertConfig(**SIZES, max_position_embeddings=29, **size)
        reference = with_random_weights(getattr(hf, name)(config))
        folders.bert_tokenizer(save(reference, folder / "huggingface"))
        return reference, [str(folder / "huggingface")]

    return make


def make_gpt2(folder: Path) -> Checkpoint:
    size = folders.gpt2_tokenizer(folder / "huggingface")
    ends = {"bos_token_id": size - 1, "eos_token_id": size - 1}
    reference = with_random_weights(hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=size, **GPT2, **ends)))
    return reference, [str(save(reference, folder / "huggingface"))]


def make_t5(folder: Path) -> Checkpoint:
    size = folders.t5_tokenizer(folder / "huggingface")
    reference = with_random_weights(hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size, **T5)))
    return reference, [str(save(reference, folder / "huggingface"))]


def make_marian(folder: Path) -> Checkpoint:
    size = folders.marian_tokenizer(folder / "huggingface")
    reference = with_random_weights(hf.MarianMTModel(marian_config(hf.MarianConfig, size, decoder_vocab_size=size)))
    return reference, [str(save(reference, folder / "huggingface"))]


def make_pegasus(folder: Path) -> Checkpoint:
    size = folders.t5_tokenizer(folder / "huggingface")
    settings = {**MARIAN, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    reference = with_random_weights(hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=size, **settings)))
    return reference, [str(save(reference, folder / "huggingface"))]


def make_vit(folder: Path) -> Checkpoint:
    config = hf.ViTConfig(**SIZES, image_size=12, patch_size=4, num_channels=1, id2label=LABELS)
    reference = with_random_weights(hf.ViTForImageClassification(config))
    return reference, [str(save(reference, folder / "huggingface"))]


def make_fairseq(folder: Path) -> Checkpoint:
    return write_checkpoint(folder, shared=False), [str(folder / "checkpoints" / "best.pt")]


def make_torch(folder: Path) -> Checkpoint:
    torch.save(with_random_weights(Seq2SeqTransformer()).state_dict(), folder / "model.pt")
    return None, [str(folder / "model.pt"), *vocabulary_options(folder)]


def make_annotated(folder: Path) -> Checkpoint:
    reference = with_random_weights(EncoderDecoder(len(SOURCE), len(TARGET), 11, 22, 17, 2))
    save_file({name: tensor.contiguous() for name, tensor in reference.state_dict().items()}, folder / "m.safetensors")
    return None, [str(folder / "m.safetensors"), *vocabulary_options(folder)]


@dataclass(frozen=True)
class ImportCase:
    """A checkpoint, its task, and texts that its tokenizer can encode."""

    make: Callable[[Path], Checkpoint]
    task: str
    text: str = "the dogs run."
    target: str = "a dog"
    exports: bool = True
    """Whether `transformers` has such a model."""


LAYOUT = {"text": "a b c", "target": "u v w x", "exports": False}
CASES = {
    "BERT, labels": ImportCase(bert("BertForSequenceClassification", id2label=LABELS), "classify", "the big dog"),
    "BERT, tags": ImportCase(bert("BertForTokenClassification", id2label=TAGS), "tag", "the big dog"),
    "BERT, masks": ImportCase(bert("BertForMaskedLM"), "mlm", "the [MASK] dog runs"),
    "DistilBERT, labels": ImportCase(
        bert("DistilBertForSequenceClassification", id2label=LABELS), "classify", "a big dog"
    ),
    "DistilBERT, tags": ImportCase(bert("DistilBertForTokenClassification", id2label=TAGS), "tag", "a big dog"),
    "DistilBERT, masks": ImportCase(bert("DistilBertForMaskedLM"), "mlm", "the [MASK] dog runs"),
    "GPT-2": ImportCase(make_gpt2, "lm", "the dog"),
    "T5": ImportCase(make_t5, "translate"),
    "Marian": ImportCase(make_marian, "translate", target="ein hund"),
    "Pegasus": ImportCase(make_pegasus, "translate"),
    "ViT": ImportCase(make_vit, "image"),
    "fairseq": ImportCase(make_fairseq, "translate", "the dogs", "hund der", exports=False),
    "nn.Transformer": ImportCase(make_torch, "translate", **LAYOUT),  # type: ignore[arg-type]
    "Annotated Transformer": ImportCase(make_annotated, "translate", **LAYOUT),  # type: ignore[arg-type]
}


def write_data(folder: Path, case: ImportCase) -> Path:
    """Write examples for evaluation and training; return their path."""
    text, path = case.text.replace("[MASK] ", ""), folder / "data.txt"
    if case.task == "image":
        for number in range(12):
            name = folder / "images" / LABELS[number % 3] / f"{number}.png"
            name.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((12, 12), 20 * number, dtype=np.uint8)).save(name)
        return folder / "images"
    if case.task == "tag":
        path = folder / "data.conll"
        words = [f"{text}{' a' * (n % 4)}".split() for n in range(20)]
        path.write_text("\n".join("".join(f"{word} {TAGS[len(word) % 2]}\n" for word in each) for each in words))
    elif case.task in ("mlm", "lm"):
        path.write_text("".join(f"{text}{' a dog' * (n % 4)}\n\n" for n in range(20)))
    else:
        path = folder / "data.tsv"
        answers = [LABELS[n % 3] if case.task == "classify" else case.target for n in range(20)]
        path.write_text("".join(f"{text}{' a' * (n % 4)}\t{answer}\n" for n, answer in enumerate(answers)))
    return path


def verb_arguments(folder: Path, case: ImportCase, data: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the arguments of the verb, and set its standard input."""
    given_texts = {"lm": [case.text, "--max-tokens", "5"], "image": [str(data / "cat" / "0.png")]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{case.text}\n".encode())))
    return [get_task(case.task).verb, str(folder), *given_texts.get(case.task, []), "--threads", "1"]


def assert_same_attention(reference: Any, model: Model, text: str) -> None:
    """Compare every head of every layer, for the same token ids."""
    is_image = model.config.model.reads_images
    trace = model.trace_image(text) if is_image else model.trace(text)
    reference.set_attn_implementation("eager")
    read, written = ([[position.token for position in positions]] for positions in (trace.source, trace.inputs))
    if is_image:
        ids = {"pixel_values": image_input(model, Path(text)).src}
    else:
        ids = {"input_ids": torch.tensor(read if trace.source else written)}
    if trace.source and trace.inputs:
        ids["decoder_input_ids"] = torch.tensor(written)
    with torch.inference_mode():
        found = reference(**ids, output_attentions=True)
    for kind in trace.kinds:
        name = next(name for name in ATTENTION[kind] if getattr(found, name, None) is not None)
        layers = getattr(found, name)
        assert len(layers) == len(trace.layers(kind))
        for one, expected in zip(trace.layers(kind), layers, strict=True):
            close(torch.from_numpy(one.weights_HTS), expected[0])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a warning of torch's fast path
@pytest.mark.parametrize("name", CASES)
def test_every_verb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    reference, arguments = case.make(tmp_path)
    data = write_data(tmp_path, case)
    assert main(["import", *arguments, "--out", str(tmp_path / "clearhead")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    assert model.config.task == case.task
    inspected = str(data / "cat" / "0.png") if case.task == "image" else case.text
    if reference is not None:
        assert_same_attention(reference, model, inspected)
    start = ["train", str(data), "--task", case.task, "--from", str(tmp_path / "clearhead"), "--steps", "2"]
    assert main([*start, "--out", str(tmp_path / "tuned"), "--threads", "1"]) == 0
    for folder in (tmp_path / "clearhead", tmp_path / "tuned"):
        capsys.readouterr()
        assert main(verb_arguments(folder, case, data, monkeypatch)) == 0
        assert capsys.readouterr().out.count("\n") >= 1
        assert main(["evaluate", str(folder), str(data), "--threads", "1"]) == 0
        assert main(["inspect", str(folder), inspected, "--layer", "1", "--head", "2", "--threads", "1"]) == 0
    code = main(["export", str(tmp_path / "tuned"), "--to", "huggingface", str(tmp_path / "again")])
    assert (code == 0) == case.exports
    if case.exports and reference is not None:
        exported = type(reference).from_pretrained(tmp_path / "again").eval()
        assert_same_attention(exported, clearhead.load(tmp_path / "tuned"), inspected)
