"""Batches of Multi30k with token ids, identical for all contestants."""

import gzip
from pathlib import Path

import numpy as np

from benchmarks.harness.protocol import Data, Pairs, Task
from clearhead.data.batching import plan_batches
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig

VOCAB_SIZE = 6000


def read_lines(folder: Path, name: str) -> list[str]:
    """Return the lines of `name` or `name.gz` in a folder."""
    plain, compressed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        return plain.read_text(encoding="utf-8").splitlines()
    if compressed.exists():
        return gzip.decompress(compressed.read_bytes()).decode("utf-8").splitlines()
    raise SystemExit(f"expected {plain} or {compressed.name}; DATA is the folder of Multi30k (docs/results.md)")


def build_data(folder: Path, batch_tokens: int, seed: int) -> Data:
    """Return one epoch of batches, tokenized with a joint vocabulary that is trained on the training text."""
    texts = {name: read_lines(folder, name) for name in ("train.en", "train.de", "val.en", "val.de")}
    tokenizer = Tokenizer.train(texts["train.en"] + texts["train.de"], TokenizerConfig(vocab_size=VOCAB_SIZE))
    ids = {name: [[*row, Task.end_id] for row in tokenizer.encode_batch(lines)] for name, lines in texts.items()}
    source, target = ids["train.en"], ids["train.de"]
    plan = plan_batches(_lengths(source), _lengths(target), batch_tokens, seed, epoch=0)
    train = [Pairs([source[i] for i in batch], [target[i] for i in batch]) for batch in plan]
    order = np.argsort(-_lengths(ids["val.en"]), kind="stable")
    valid = Pairs([ids["val.en"][i] for i in order], [ids["val.de"][i] for i in order])
    return Data(train, valid, tokenizer.vocab_size)


def _lengths(rows: list[list[int]]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array([len(row) for row in rows], dtype=np.int64)
