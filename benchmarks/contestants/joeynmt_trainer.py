"""JoeyNMT as run by `joeynmt train`: its own trainer, data loader and batches, on the same sentences.

Its loader does not group sentences by length, so it computes on much padding. The text consists of names of token ids,
and the tokenizer splits at spaces.
"""

import random
import tempfile
from pathlib import Path

import torch
from joeynmt.config import parse_test_args, parse_train_args
from joeynmt.datasets import PlaintextDataset
from joeynmt.tokenizers import BasicTokenizer
from joeynmt.training import TrainManager

from benchmarks.contestants.joeynmt import JoeyNMT
from benchmarks.harness.protocol import Pairs, Setting, Start, serve

LANGUAGES = ("source", "target")


class JoeyTrainer(JoeyNMT):
    name = "JoeyNMT's own trainer"
    notes = (
        "own batches with the same number of tokens, own Adam and logging; one pass over the same sentences; writes "
        "a checkpoint at the end; decoding as JoeyNMT"
    )

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.folder = tempfile.TemporaryDirectory(prefix="joeynmt-")
        torch.set_num_threads(start.setting.threads)

    @staticmethod
    def train_settings(cores: int) -> list[Setting]:
        return [Setting(threads=cores)]

    @staticmethod
    def decode_settings(cores: int) -> list[Setting]:
        return []

    def prepare(self, batches: list[Pairs]) -> PlaintextDataset:
        """Write the sentences of the batches in random order to files and return JoeyNMT's data set."""
        sentences = [pair for batch in batches for pair in zip(batch.source, batch.target, strict=True)]
        random.Random(self.task.seed).shuffle(sentences)
        words, path = self.module.model.src_vocab, Path(self.folder.name) / "train"
        for language, rows in zip(LANGUAGES, zip(*sentences, strict=True), strict=True):
            lines = [" ".join(words._itos[index] for index in row[:-1]) for row in rows]  # without the end token
            path.with_suffix(f".{language}").write_text("\n".join(lines) + "\n")
        tokenizer = BasicTokenizer()
        tokenizer.set_vocab(words)
        return PlaintextDataset(
            path=str(path), src_lang=LANGUAGES[0], trg_lang=LANGUAGES[1], split="train", has_trg=True,
            has_prompt=dict.fromkeys(LANGUAGES, False), tokenizer=dict.fromkeys(LANGUAGES, tokenizer),
            sequence_encoder=dict.fromkeys(LANGUAGES, words.sentences_to_ids),
        )  # fmt: skip

    def train(self, prepared: PlaintextDataset) -> None:
        task = self.task
        self.module.set_smoothing(task.label_smoothing)
        settings = {
            "optimizer": "adam", "adam_betas": [task.beta1, task.beta2], "learning_rate": task.learning_rate,
            "scheduling": "warmupinversesquareroot", "learning_rate_warmup": task.warmup, "learning_rate_min": 0.0,
            "clip_grad_norm": task.clip_norm, "normalization": "tokens", "label_smoothing": task.label_smoothing,
            "batch_type": "token", "batch_size": task.batch_tokens, "epochs": 1,
            "logging_freq": 100, "validation_freq": 10**8,
        }  # fmt: skip
        manager = TrainManager(
            rank=0, model=self.module.model, model_dir=Path(self.folder.name), device=torch.device("cpu"),
            autocast={"device_type": "cpu", "enabled": False}, seed=task.seed, train_args=parse_train_args(settings),
            dev_args=parse_test_args({}),
        )  # fmt: skip
        manager.train_and_validate(prepared, prepared)


if __name__ == "__main__":
    serve(JoeyTrainer)
