"""Base classes of contestants with a torch module: tensors, training loop, several processes.

The loop is simple and fast (fused Adam, gradients as views into DistributedDataParallel's buckets). It does not log or
validate as a toolkit's own trainer does, to the peers' advantage.
"""

import math
from abc import abstractmethod
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.protocol import Contestant, Pairs, Setting, Start, Task


class Batch(NamedTuple):
    """Padded ids of one process, and the number of target tokens of the whole batch."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    tokens: int


def pad(rows: list[list[int]], pad_id: int) -> Tensor:
    """Return the rows as one tensor, padded at the end."""
    longest = max(map(len, rows))
    return torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])


def make_batch(pairs: Pairs, task: Task, tokens: int) -> Batch:
    """Return a batch whose decoder input is the start token and the target without its end token."""
    tgt_in = pad([[task.start_id, *row[:-1]] for row in pairs.target], task.pad_id)
    return Batch(pad(pairs.source, task.pad_id), tgt_in, pad(pairs.target, task.pad_id), tokens)


class LossModule(nn.Module):
    """Module that computes a model's loss, summed over the target tokens."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    @abstractmethod
    def set_smoothing(self, smoothing: float) -> None: ...

    @abstractmethod
    def forward(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor: ...


class LogitsLoss(LossModule):
    """Model that returns logits, with torch's cross-entropy."""

    smoothing = 0.0

    def set_smoothing(self, smoothing: float) -> None:
        self.smoothing = smoothing

    @abstractmethod
    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the logits at all target positions."""

    def forward(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
        return F.cross_entropy(
            self.logits(src, tgt_in).flatten(0, 1),
            tgt_out.flatten(),
            ignore_index=self.task.pad_id,
            label_smoothing=self.smoothing,
            reduction="sum",
        )


class TorchPeer(Contestant):
    """Contestant with a torch module; subclasses build the module and implement decoding."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        torch.set_num_threads(start.setting.threads)
        torch.manual_seed(self.task.seed)
        self.module = self.build()
        self.module.train()
        self.world, self.meeting = start.setting.processes, start.meeting
        self.parallel: nn.Module = self.module
        self.weights = [p for p in self.module.parameters() if p.requires_grad]
        task = self.task
        self.optimizer = torch.optim.Adam(self.weights, betas=(task.beta1, task.beta2), eps=task.epsilon, fused=True)
        self.step = 0

    @abstractmethod
    def build(self) -> LossModule: ...

    @staticmethod
    def train_settings(cores: int) -> list[Setting]:
        whole = [Setting(threads=cores)]
        return whole if cores == 1 else [*whole, Setting(processes=cores)]

    @staticmethod
    def decode_settings(cores: int) -> list[Setting]:
        layouts = [Setting(threads=cores)] + [Setting(processes=cores)] * (cores > 1)
        return [Setting(each.processes, each.threads, batch=batch) for each in layouts for batch in (32, 64, 128, 256)]

    def parameters(self) -> int:
        return sum(p.numel() for p in self.weights)

    def _join(self) -> None:
        """Connect to the other processes, for exchanging gradients in training."""
        address = f"file://{self.meeting}"
        dist.init_process_group(
            "gloo", init_method=address, rank=self.rank, world_size=self.world, timeout=timedelta(minutes=5)
        )
        self.parallel = DistributedDataParallel(self.module, broadcast_buffers=False, gradient_as_bucket_view=True)
        torch.manual_seed(self.task.seed + self.rank)  # dropout differs from process to process

    def prepare(self, batches: list[Pairs]) -> list[Batch]:
        if self.world > 1 and self.parallel is self.module:
            self._join()
        return [make_batch(pairs.part(self.rank, self.world), self.task, pairs.target_tokens) for pairs in batches]

    def train(self, prepared: list[Batch]) -> None:
        self.module.train()
        self.module.set_smoothing(self.task.label_smoothing)
        for src, tgt_in, tgt_out, tokens in prepared:
            self.step += 1
            self.optimizer.zero_grad(set_to_none=self.world == 1)
            with torch.autocast("cpu", torch.bfloat16, enabled=self.task.precision == "bfloat16"):
                loss = self.parallel(src, tgt_in, tgt_out)
            # Distributed gradients are means over the processes, but the loss is the mean over all tokens.
            (loss * (self.world / tokens)).backward()
            nn.utils.clip_grad_norm_(self.weights, self.task.clip_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = self.task.learning_rate * warmup_factor(self.step, self.task.warmup)
            self.optimizer.step()

    @torch.inference_mode()
    def loss(self, pairs: Pairs) -> float:
        self.module.eval()
        self.module.set_smoothing(0.0)
        return float(self.module(*make_batch(pairs, self.task, 0)[:3]))

    def save(self, path: str) -> None:
        torch.save(self.module.state_dict(), path)

    def load(self, path: str) -> None:
        self.module.load_state_dict(torch.load(path, weights_only=True))


class TrainingOnlyPeer(TorchPeer):
    """Contestant that is measured in training only."""

    @staticmethod
    def decode_settings(cores: int) -> list[Setting]:
        return []

    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        raise NotImplementedError(f"{self.name} has no settings for decoding")


def warmup_factor(step: int, warmup: int) -> float:
    """Return the learning rate factor: linear warm-up to 1, then proportional to 1/sqrt(step)."""
    return min(step / warmup, math.sqrt(warmup / step))
