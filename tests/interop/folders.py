"""Small random models of `transformers`, saved in folders with tokenizer files."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

hf: Any = transformers  # whose types are not strict

WORDS = ["the", "a", "small", "dog", "cat", "runs", "sleeps", "##s", "##ing", "eat", "drink", ".", ",", "café", "big"]
BERT_TOKENS = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *WORDS,
    *"bcdefgh",
    *(f"##{c}" for c in "abcdefgh"),
]
TEXTS = ["The small dog runs.", "a cat sleeps, eating", "cafés", "xyz big [SEP] dog"]


@torch.no_grad()
def with_random_weights(model: Any) -> Any:
    """Return the model with random weights, because a test does not detect an ignored weight of 0 or 1."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def save(model: Any, folder: Path) -> Path:
    """Write config.json and model.safetensors; return the folder."""
    model.save_pretrained(folder)
    return folder


def bert_tokenizer(folder: Path) -> None:
    """Write vocab.txt and its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(BERT_TOKENS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )


def close(found: Tensor, expected: Tensor) -> None:
    """Assert that tensors differ by at most 1e-5 times the largest value, or 1e-5: the rounding error of sums."""
    torch.testing.assert_close(found, expected, atol=1e-5 * max(1.0, float(expected.abs().max())), rtol=1e-5)


def gpt2_tokenizer(folder: Path) -> int:
    """Write byte-level vocab.json and merges.txt; return the number of tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    merges = ["Ġ d", "Ġd o", "Ġdo g", "t h", "th e", "Ã ©"]
    tokens = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    names = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return len(tokens)


UNIGRAM = [
    ("▁the", -2.0),
    ("▁dog", -3.0),
    ("▁", -2.5),
    ("s", -4.0),
    ("run", -4.5),
    ("▁a", -3.1),
    ("é", -7.0),
    (".", -3.3),
]
UNIGRAM += [(letter, -6.0 - number / 10) for number, letter in enumerate("abcdefghijklmno")]


def t5_tokenizer(folder: Path) -> int:
    """Write tokenizer.json with a unigram model; return the number of tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *UNIGRAM]
    pipeline = Pipeline(models.Unigram(vocabulary, unk_id=2))
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always")
    pipeline.decoder = decoders.Metaspace("▁", "always")
    pipeline.add_special_tokens(["<pad>", "</s>", "<unk>"])
    pipeline.save(str(folder / "tokenizer.json"))
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return len(vocabulary)


def _field(number: int, content: bytes | int | float) -> bytes:
    """Return one field of a protocol buffer."""
    if isinstance(content, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", content)
    if isinstance(content, int):
        return bytes([*_varint(number << 3), *_varint(content)])
    return bytes([*_varint(number << 3 | 2), *_varint(len(content))]) + content


def _varint(number: int) -> list[int]:
    return [number] if number < 128 else [number & 127 | 128, *_varint(number >> 7)]


def write_spm(
    path: Path, tokens: list[tuple[str, float]], model_kind: int = 1, specials: Sequence[str] = ("<unk>", "<s>", "</s>")
) -> None:
    """Write a SentencePiece model with these tokens after the special ones."""
    kinds = [(name, 0.0, 2 if name == "<unk>" else 3) for name in specials]
    kinds += [(name, score, 1) for name, score in tokens]
    entries = (_field(1, name.encode()) + _field(2, score) + _field(3, kind) for name, score, kind in kinds)
    data = b"".join(_field(1, entry) for entry in entries)
    path.write_bytes(data + _field(2, _field(3, model_kind)) + _field(3, _field(1, b"identity") + _field(3, 1)))


def marian_tokenizer(folder: Path) -> int:
    """Write source.spm, target.spm and one vocab.json; return the number of tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    write_spm(folder / "source.spm", UNIGRAM)
    write_spm(folder / "target.spm", [("▁ein", -2.0), ("▁hund", -2.2), *UNIGRAM[2:]])
    names = ["</s>", "<unk>", *(name for name, _ in UNIGRAM), "▁ein", "▁hund", ">>deu<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    return len(names)


def assert_same_tensors(before: Path, after: Path) -> None:
    """Assert that two folders contain the same tensors, bit by bit."""
    new, old = (load_file(folder / "model.safetensors") for folder in (after, before))
    assert new.keys() == old.keys()
    for name, tensor in old.items():
        assert torch.equal(new[name], tensor), name
