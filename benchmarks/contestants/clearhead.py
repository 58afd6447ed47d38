"""clearhead, with the trainer of `clearhead train` and the native engine."""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np
import torch

import clearhead.config
from benchmarks.contestants.torch_peer import Batch, make_batch
from benchmarks.harness.protocol import Contestant, Pairs, Setting, Start, Task, serve
from clearhead.config import ModelConfig
from clearhead.data.batching import Indices
from clearhead.decoding.requests import Request
from clearhead.engines.native_engine import NativeEngine
from clearhead.model.loss import Loss, cross_entropy
from clearhead.model.parameters import count_parameters, named_weights
from clearhead.model.transformer import Transformer
from clearhead.runtime import prepare
from clearhead.tasks.trainable.task import Decode, Validation
from clearhead.training.distributed.thread_data_parallel import replica_count
from clearhead.training.loop.callbacks import NullCallback, NullRunLogger
from clearhead.training.loop.process_environment import no_malloc_trim, use_single_arena
from clearhead.training.loop.schedule import Schedule
from clearhead.training.loop.trainer import Trainer


def model_config(task: Task) -> ModelConfig:
    """Return the settings of preset tiny, overridden by the shape of the task."""
    shape = {
        "vocab_size": task.vocab_size,
        "num_encoder_layers": task.num_layers,
        "num_decoder_layers": task.num_layers,
        "model_dim": task.model_dim,
        "feed_forward_dim": task.inner_dim,
        "num_heads": task.num_heads,
        "norm_placement": task.norm,
        "dropout": task.dropout,
        "max_positions": task.max_positions,
        "pad_id": task.pad_id,
        "decoder_start_id": task.start_id,
        "eos_id": task.end_id,
    }
    return clearhead.config.build({"model": shape}, preset="tiny").model


@dataclass
class PreparedTask:
    """Training task over prepared batches of tensors: example i is batch i, and all epochs have the same batches."""

    parts: list[list[Batch]]
    """Parts of each batch, one per replica."""
    pad_id: int
    smoothing: float
    unit: str = "tok"

    def num_examples(self) -> tuple[int, int]:
        return len(self.parts), 0

    def plan(self, epoch: int) -> list[Indices]:
        return [np.array([number]) for number in range(len(self.parts))]

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        number = int(indices[0])
        assert parts == len(self.parts[number]), "batches must be prepared for as many replicas as the trainer has"
        return [np.array([number, part]) for part in range(parts)]

    def batch(self, indices: Indices, epoch: int) -> Batch:
        number, part = map(int, indices)
        return self.parts[number][part]

    def tokens(self, indices: Indices) -> int:
        return self.parts[int(indices[0])][0].tokens

    def lines(self, indices: Indices) -> list[int]:
        return []

    def loss(self, model: Any, batch: Batch) -> Loss:
        hidden_NTD = model(batch.src, batch.tgt_in)
        return cross_entropy(hidden_NTD, model.output.weight, batch.tgt_out, self.pad_id, self.smoothing)

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return an empty validation; the trainer validates at the end of a run."""
        return Validation(0.0, 0.0, "none", "", ("", "", ""))


def build_trainer(model: Transformer, task: Task, threads: int) -> Trainer:
    """Return the trainer of `clearhead train`, without validation or checkpoints before the end of a run."""
    settings = {
        "seed": task.seed,
        "batch_tokens": task.batch_tokens,
        "precision": task.precision,
        "label_smoothing": task.label_smoothing,
        "adam_beta1": task.beta1,
        "adam_beta2": task.beta2,
        "adam_epsilon": task.epsilon,
        "clip_norm": task.clip_norm,
        "patience": 0,
        "validate_every": 10**9,
        "save_every": 10**9,
    }
    config = clearhead.config.build({"training": settings}, preset="tiny").training
    schedule = Schedule(task.learning_rate, task.warmup, steps=0, cooldown=0.0)
    prepared = PreparedTask([], task.pad_id, task.label_smoothing)
    return Trainer(prepared, model, config, schedule, NullCallback(), NullRunLogger(), threads)


def run_updates(trainer: Trainer, batches: list[list[Batch]]) -> None:
    """Perform one update per batch, as the next epoch."""
    assert isinstance(trainer.task, PreparedTask)
    trainer.task.parts = batches
    trainer.schedule = replace(trainer.schedule, steps=trainer.schedule.steps + len(batches))
    trainer.state.epoch, trainer.state.batch = trainer.state.epoch + 1, 0
    trainer.run()


def make_engine(model: Transformer, threads: int) -> NativeEngine:
    """Return the engine that `clearhead translate` uses by default."""
    tensors = {name: tensor.detach().numpy() for name, tensor in named_weights(model).items()}
    return NativeEngine(prepare(model.config, tensors), threads, token_log_probs=False)


class Clearhead(Contestant):
    name = "clearhead"
    notes = "Trainer with a replica of the model per core; NativeEngine"

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        torch.set_num_threads(self.setting.threads)
        torch.manual_seed(self.task.seed)
        use_single_arena()  # as `clearhead train` does
        self._whole_run = ExitStack()  # warm-up and timed updates form one run
        self._whole_run.enter_context(no_malloc_trim())
        self.model = Transformer(model_config(self.task))
        self.engine: NativeEngine | None = None
        self.trainer = build_trainer(self.model, self.task, self.setting.threads)

    @staticmethod
    def version() -> str:
        try:
            return metadata.version("clearhead")
        except metadata.PackageNotFoundError:
            return "(this checkout)"

    @staticmethod
    def train_settings(cores: int) -> list[Setting]:
        return [Setting(threads=cores)]

    @staticmethod
    def decode_settings(cores: int) -> list[Setting]:
        return [Setting(threads=cores)]

    def parameters(self) -> int:
        return count_parameters(self.model)

    def prepare(self, batches: list[Pairs]) -> list[list[Batch]]:
        count = replica_count(self.setting.threads, self.task.batch_tokens)
        return [
            [make_batch(pairs.part(i, count), self.task, pairs.target_tokens) for i in range(count)]
            for pairs in batches
        ]

    def train(self, prepared: list[list[Batch]]) -> None:
        run_updates(self.trainer, prepared)
        self.engine = None  # its weights are outdated

    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        length = self.task.output_tokens  # of every output, so that all contestants generate the same number of tokens
        settings = {
            "beam_size": beam,
            "length_penalty": self.task.alpha,
            "max_length": str(length),
            "min_length": length,
        }
        decoding = clearhead.config.build({"decoding": settings}).decoding
        self.engine = self.engine or make_engine(self.model, self.setting.threads)
        results = self.engine.run([Request(tuple(ids)) for ids in sources], decoding)
        return sum(len(hypotheses[0].tokens) for hypotheses in results)

    @torch.inference_mode()
    def loss(self, pairs: Pairs) -> float:
        self.model.eval()
        batch = make_batch(pairs, self.task, 0)
        hidden_NTD = self.model(batch.src, batch.tgt_in)
        return float(cross_entropy(hidden_NTD, self.model.output.weight, batch.tgt_out, self.task.pad_id, 0.0).nll)

    def save(self, path: str) -> None:
        torch.save(self.model.state_dict(), path)

    def load(self, path: str) -> None:
        self.model.load_state_dict(torch.load(path, weights_only=True))
        self.engine = None


if __name__ == "__main__":
    serve(Clearhead)
