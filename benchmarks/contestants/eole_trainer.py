"""EOLE as `eole train` runs it: its own trainer, optimizer, data loader and batches, on the same sentences.

Its loader reads text, sorts a bucket of sentences by length and cuts it into batches. The sentences are given as pieces
that stand for ids: without a tokenizer it only splits at spaces. The steps are those of its `train_single.main` without
the checkpoint: its trainer writes none when it is given no saver. Two settings are not its defaults. The bucket holds
all sentences there are: to fill one of 262,144 it would read them a hundred times before the first update. And the
loader runs in the same process: its worker processes would import everything anew, inside the clock.
"""

import dataclasses
import tempfile
import warnings
from itertools import takewhile
from pathlib import Path
from typing import Any

from benchmarks.contestants.eole import Eole, model_config
from benchmarks.protocol import Pairs, Setting, Start, Task, serve

with warnings.catch_warnings():  # it misses kernels for GPUs
    warnings.simplefilter("ignore")
    from eole.config.run import TrainConfig
    from eole.inputters.dynamic_iterator import build_dynamic_dataset_iter
    from eole.train_single import TrainingInitializer
    from eole.trainer import Trainer, build_trainer
    from eole.utils.optimizers import Optimizer

CPU = -1


def words_of(task: Task) -> list[str]:
    """A name for each id; those of the special pieces are EOLE's own."""
    specials = {task.pad_id: "<blank>", task.unk_id: "<unk>", task.start_id: "<s>", task.end_id: "</s>"}
    return [specials.get(index, f"piece{index}") for index in range(task.vocab_size)]


def train_config(task: Task, folder: Path, bucket_size: int) -> TrainConfig:
    """The whole configuration of a run, as its YAML files have it; the sentences are in the folder."""
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
    """One pass over some sentences."""

    trainer: Trainer
    batches: Any
    """The loader, which begins anew without end."""
    updates: int
    tokens: int


class EoleTrainer(Eole):
    name = "EOLE's own trainer"
    notes = (
        "its own batches of at most as many tokens, its Adam and statistics; one pass over the same sentences, read "
        "and sorted by length inside the clock; no processes of their own for that, no validation, no checkpoint"
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
        """The sentences of these batches as files, the loader that reads them, and how many batches it will make."""
        folder, words = Path(self.folder.name), words_of(self.task)
        sources = [row for pairs in batches for row in pairs.source]
        targets = [row[:-1] for pairs in batches for row in pairs.target]  # it adds the end piece by itself
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
        if statistics.n_tokens != prepared.tokens:  # it leaves out a source that its batch has already
            raise ValueError(f"EOLE trained on {statistics.n_tokens} target tokens, expected {prepared.tokens}")


if __name__ == "__main__":
    serve(EoleTrainer)
