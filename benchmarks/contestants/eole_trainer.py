"""EOLE as run by `eole train`: its own trainer, optimizer, data loader and batches, on the same sentences.

Its loader reads text, sorts a bucket of sentences by length and divides it into batches. The text consists of names of
token ids, since without a tokenizer EOLE splits at spaces. The code follows `train_single.main`, without a checkpoint.
Two settings differ from EOLE's defaults. The bucket has the size of the data, because filling a bucket of 262,144
sentences would read the data a hundred times before the first update. The loader runs in the same process, because
starting worker processes would be part of the measured time.
"""

import dataclasses
import tempfile
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.contestants.eole import Eole, model_config
from benchmarks.harness.protocol import Pairs, Setting, Start, Task, serve

with warnings.catch_warnings():  # about missing GPU kernels
    warnings.simplefilter("ignore")
    from eole.config.run import TrainConfig
    from eole.inputters.dynamic_iterator import build_dynamic_dataset_iter
    from eole.train_single import TrainingInitializer
    from eole.trainer import Trainer, build_trainer
    from eole.utils.optimizers import Optimizer

CPU = -1


def words_of(task: Task) -> list[str]:
    """Return a name for each id; the special tokens have EOLE's names."""
    specials = {task.pad_id: "<blank>", task.unk_id: "<unk>", task.start_id: "<s>", task.end_id: "</s>"}
    return [specials.get(index, f"token{index}") for index in range(task.vocab_size)]


def train_config(task: Task, folder: Path, bucket_size: int) -> TrainConfig:
    """Return the configuration of a run on the sentences in a folder."""
    return TrainConfig(
        data={"corpus": {"path_src": str(folder / "train.source"), "path_tgt": str(folder / "train.target")}},
        src_vocab=str(folder / "words"), share_vocab=True, src_vocab_size=task.vocab_size,
        tgt_vocab_size=task.vocab_size, vocab_size_multiple=1, seed=task.seed, model=model_config(task),
        training={
            "optim": "adam", "adam_beta1": task.beta1, "adam_beta2": task.beta2, "adam_eps": task.epsilon,
            "learning_rate": task.learning_rate * (task.model_dim * task.warmup) ** 0.5, "decay_method": "noam",
            "warmup_steps": task.warmup, "max_grad_norm": task.clip_norm, "label_smoothing": task.label_smoothing,
            "dropout": [task.dropout], "attention_dropout": [0.0], "compute_dtype": "fp32",
            "batch_type": "tokens", "batch_size": task.batch_tokens, "normalization": "tokens",
            "bucket_size": bucket_size, "num_workers": 0, "world_size": 0, "gpu_ranks": [],
            "model_path": str(folder / "model"),
        },
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Pass:
    """One pass over the prepared sentences."""

    trainer: Trainer
    batches: Any
    """Loader that repeats the sentences without end."""
    updates: int
    tokens: int


class EoleTrainer(Eole):
    name = "EOLE's own trainer"
    notes = (
        "own batches with the same limit of tokens, own Adam and statistics; one pass over the same sentences, read "
        "and sorted by length during the measurement in the same process; no validation, no checkpoint"
    )

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.folder = tempfile.TemporaryDirectory(prefix="eole-")
        (Path(self.folder.name) / "words").write_text("\n".join(words_of(self.task)) + "\n")
        config = train_config(self.task, Path(self.folder.name), bucket_size=1)
        self.optim = Optimizer.from_config(self.module.model, config)

    @staticmethod
    def train_settings(cores: int) -> list[Setting]:
        return [Setting(threads=cores)]

    def prepare(self, batches: list[Pairs]) -> Pass:
        """Write the sentences of the batches to files; return a loader for them and its number of batches."""
        folder, words = Path(self.folder.name), words_of(self.task)
        sources = [row for pairs in batches for row in pairs.source]
        targets = [row[:-1] for pairs in batches for row in pairs.target]  # EOLE appends the end token
        for name, rows in (("source", sources), ("target", targets)):
            lines = [" ".join(words[index] for index in row) for row in rows]
            (folder / f"train.{name}").write_text("\n".join(lines) + "\n")
        config = train_config(self.task, folder, bucket_size=len(sources))
        context = TrainingInitializer(config).initialize()
        trainer = build_trainer(config, CPU, self.module.model, context.vocabs, self.optim)
        loaders = [build_dynamic_dataset_iter(config, context.transforms, context.vocabs) for _ in range(2)]
        updates = sum(1 for _ in takewhile(lambda item: item[1] == 0, loaders[0]))
        return Pass(trainer, loaders[1], updates, sum(pairs.target_tokens for pairs in batches))

    def train(self, prepared: Pass) -> None:
        last = self.optim.training_step - 1 + prepared.updates
        statistics = prepared.trainer.train(prepared.batches, last, save_checkpoint_steps=0)
        if statistics.n_tokens != prepared.tokens:  # EOLE drops a repeated source in a batch
            raise ValueError(f"EOLE trained on {statistics.n_tokens} target tokens, expected {prepared.tokens}")


if __name__ == "__main__":
    serve(EoleTrainer)
