"""An imported model is a model like any other: its verb, scores, a trace, training that goes on from it, and export.

What a trace shows is compared with the attention that `transformers` computes.
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
from clearhead.inspection.trace.run_trace import image_input
from clearhead.tasks.registry import get_task
from tests.interop import folders
from tests.interop.annotated import EncoderDecoder
from tests.interop.folders import BERT_PIECES, close, hf, save, shaken
from tests.interop.test_fairseq import write_checkpoint
from tests.interop.test_families import MARIAN, T5, marian_config
from tests.interop.test_torch_layouts import SOURCE, TARGET, Seq2SeqTransformer, given

LABELS = {0: "cat", 1: "dog", 2: "x"}
TAGS = {0: "O", 1: "B-X", 2: "I-X"}
SIZES = {"hidden_size": 22, "num_hidden_layers": 2, "num_attention_heads": 11, "intermediate_size": 17}
DISTIL = {"dim": 22, "n_layers": 2, "n_heads": 11, "hidden_dim": 17, "max_position_embeddings": 29}
GPT2 = {"n_positions": 29, "n_embd": 22, "n_layer": 2, "n_head": 11, "n_inner": 17}
ATTENTION = {"encoder": ("encoder_attentions", "attentions"), "decoder": ("decoder_attentions", "attentions"),
             "cross": ("cross_attentions",)}  # fmt: skip

Made = tuple[Any, list[str]]
"""A model of theirs, None where it has no attention to compare, and what `import` is given."""


def bert(name: str, **settings: Any) -> Callable[[Path], Made]:
    """BERT or DistilBERT with a head."""

    def make(folder: Path) -> Made:
        size = {"vocab_size": len(BERT_PIECES), **settings}
        if name.startswith("Distil"):
            config = hf.DistilBertConfig(**DISTIL, **size)
        else:
            config = hf.BertConfig(**SIZES, max_position_embeddings=29, **size)
        theirs = shaken(getattr(hf, name)(config))
        folders.bert_tokenizer(save(theirs, folder / "theirs"))
        return theirs, [str(folder / "theirs")]

    return make


def make_gpt2(folder: Path) -> Made:
    size = folders.gpt2_tokenizer(folder / "theirs")
    ends = {"bos_token_id": size - 1, "eos_token_id": size - 1}
    theirs = shaken(hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=size, **GPT2, **ends)))
    return theirs, [str(save(theirs, folder / "theirs"))]


def make_t5(folder: Path) -> Made:
    size = folders.t5_tokenizer(folder / "theirs")
    theirs = shaken(hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=size, **T5)))
    return theirs, [str(save(theirs, folder / "theirs"))]


def make_marian(folder: Path) -> Made:
    size = folders.marian_tokenizer(folder / "theirs")
    theirs = shaken(hf.MarianMTModel(marian_config(hf.MarianConfig, size, decoder_vocab_size=size)))
    return theirs, [str(save(theirs, folder / "theirs"))]


def make_pegasus(folder: Path) -> Made:
    size = folders.t5_tokenizer(folder / "theirs")
    settings = {**MARIAN, "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}
    theirs = shaken(hf.PegasusForConditionalGeneration(hf.PegasusConfig(vocab_size=size, **settings)))
    return theirs, [str(save(theirs, folder / "theirs"))]


def make_vit(folder: Path) -> Made:
    config = hf.ViTConfig(**SIZES, image_size=12, patch_size=4, num_channels=1, id2label=LABELS)
    theirs = shaken(hf.ViTForImageClassification(config))
    return theirs, [str(save(theirs, folder / "theirs"))]


def make_fairseq(folder: Path) -> Made:
    return write_checkpoint(folder, shared=False), [str(folder / "checkpoints" / "best.pt")]


def make_torch(folder: Path) -> Made:
    torch.save(shaken(Seq2SeqTransformer()).state_dict(), folder / "model.pt")
    return None, [str(folder / "model.pt"), *given(folder)]


def make_annotated(folder: Path) -> Made:
    theirs = shaken(EncoderDecoder(len(SOURCE), len(TARGET), 11, 22, 17, 2))
    save_file({name: tensor.contiguous() for name, tensor in theirs.state_dict().items()}, folder / "m.safetensors")
    return None, [str(folder / "m.safetensors"), *given(folder)]


@dataclass(frozen=True)
class Citizen:
    """A checkpoint, what it is for, and texts that its tokenizer knows."""

    make: Callable[[Path], Made]
    task: str
    text: str = "the dogs run."
    target: str = "a dog"
    exports: bool = True
    """Whether `transformers` has such a model."""


LAYOUT = {"text": "a b c", "target": "u v w x", "exports": False}
CITIZENS = {
    "BERT, labels": Citizen(bert("BertForSequenceClassification", id2label=LABELS), "classify", "the big dog"),
    "BERT, tags": Citizen(bert("BertForTokenClassification", id2label=TAGS), "tag", "the big dog"),
    "BERT, masks": Citizen(bert("BertForMaskedLM"), "mlm", "the [MASK] dog runs"),
    "DistilBERT, labels": Citizen(
        bert("DistilBertForSequenceClassification", id2label=LABELS), "classify", "a big dog"
    ),
    "DistilBERT, tags": Citizen(bert("DistilBertForTokenClassification", id2label=TAGS), "tag", "a big dog"),
    "DistilBERT, masks": Citizen(bert("DistilBertForMaskedLM"), "mlm", "the [MASK] dog runs"),
    "GPT-2": Citizen(make_gpt2, "lm", "the dog"),
    "T5": Citizen(make_t5, "translate"),
    "Marian": Citizen(make_marian, "translate", target="ein hund"),
    "Pegasus": Citizen(make_pegasus, "translate"),
    "ViT": Citizen(make_vit, "image"),
    "fairseq": Citizen(make_fairseq, "translate", "the dogs", "hund der", exports=False),
    "nn.Transformer": Citizen(make_torch, "translate", **LAYOUT),  # type: ignore[arg-type]
    "Annotated Transformer": Citizen(make_annotated, "translate", **LAYOUT),  # type: ignore[arg-type]
}


def write_data(folder: Path, citizen: Citizen) -> Path:
    """Examples to score and to train on."""
    text, path = citizen.text.replace("[MASK] ", ""), folder / "data.txt"
    if citizen.task == "image":
        for number in range(12):
            name = folder / "pictures" / LABELS[number % 3] / f"{number}.png"
            name.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((12, 12), 20 * number, dtype=np.uint8)).save(name)
        return folder / "pictures"
    if citizen.task == "tag":
        path = folder / "data.conll"
        words = [f"{text}{' a' * (n % 4)}".split() for n in range(20)]
        path.write_text("\n".join("".join(f"{word} {TAGS[len(word) % 2]}\n" for word in each) for each in words))
    elif citizen.task in ("mlm", "lm"):
        path.write_text("".join(f"{text}{' a dog' * (n % 4)}\n\n" for n in range(20)))
    else:
        path = folder / "data.tsv"
        answers = [LABELS[n % 3] if citizen.task == "classify" else citizen.target for n in range(20)]
        path.write_text("".join(f"{text}{' a' * (n % 4)}\t{answer}\n" for n, answer in enumerate(answers)))
    return path


def answer(folder: Path, citizen: Citizen, data: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the verb is asked."""
    given_texts = {"lm": [citizen.text, "--max-tokens", "5"], "image": [str(data / "cat" / "0.png")]}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{citizen.text}\n".encode())))
    return [get_task(citizen.task).verb, str(folder), *given_texts.get(citizen.task, []), "--threads", "1"]


def same_attention(theirs: Any, ours: Model, text: str) -> None:
    """Every head of every layer, over the same ids."""
    is_picture = ours.config.model.reads_images
    trace = ours.trace_image(text) if is_picture else ours.trace(text)
    theirs.set_attn_implementation("eager")
    read, written = ([[place.token for place in places]] for places in (trace.source, trace.inputs))
    if is_picture:
        ids = {"pixel_values": image_input(ours, Path(text)).src}
    else:
        ids = {"input_ids": torch.tensor(read if trace.source else written)}
    if trace.source and trace.inputs:
        ids["decoder_input_ids"] = torch.tensor(written)
    with torch.inference_mode():
        found = theirs(**ids, output_attentions=True)
    for kind in trace.kinds:
        name = next(name for name in ATTENTION[kind] if getattr(found, name, None) is not None)
        layers = getattr(found, name)
        assert len(layers) == len(trace.layers(kind))
        for one, expected in zip(trace.layers(kind), layers, strict=True):
            close(torch.from_numpy(one.weights_HTS), expected[0])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch on a fast path of its own
@pytest.mark.parametrize("name", CITIZENS)
def test_every_verb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    citizen = CITIZENS[name]
    theirs, arguments = citizen.make(tmp_path)
    data = write_data(tmp_path, citizen)
    assert main(["import", *arguments, "--out", str(tmp_path / "ours")]) == 0
    ours = clearhead.load(tmp_path / "ours")
    assert ours.config.task == citizen.task
    looked_at = str(data / "cat" / "0.png") if citizen.task == "image" else citizen.text
    if theirs is not None:
        same_attention(theirs, ours, looked_at)
    start = ["train", str(data), "--task", citizen.task, "--from", str(tmp_path / "ours"), "--steps", "2"]
    assert main([*start, "--out", str(tmp_path / "tuned"), "--threads", "1"]) == 0
    for folder in (tmp_path / "ours", tmp_path / "tuned"):
        capsys.readouterr()
        assert main(answer(folder, citizen, data, monkeypatch)) == 0
        assert capsys.readouterr().out.count("\n") >= 1
        assert main(["evaluate", str(folder), str(data), "--threads", "1"]) == 0
        assert main(["inspect", str(folder), looked_at, "--layer", "1", "--head", "2", "--threads", "1"]) == 0
    code = main(["export", str(tmp_path / "tuned"), "--to", "huggingface", str(tmp_path / "again")])
    assert (code == 0) == citizen.exports
    if citizen.exports and theirs is not None:
        again = type(theirs).from_pretrained(tmp_path / "again").eval()
        same_attention(again, clearhead.load(tmp_path / "tuned"), looked_at)
