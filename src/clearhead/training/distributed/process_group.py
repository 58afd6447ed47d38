"""The processes that train one model together, started by torchrun on one machine or on several.

A batch is divided into one part per replica of each process (`thread_data_parallel.py`). Each process computes the
gradients of its parts, and one all-reduce per update sums flat buffers of them. Torch's DistributedDataParallel is
not used because it averages over processes, where the sum over the tokens of the update is needed. It also communicates
in the single backward pass of one module for every batch. Here several replicas have a backward pass each, a batch may
be divided further when memory is short or have fewer examples than parts, and accumulated batches need only one
communication. The price is that communication does not overlap with the backward pass.

The sums are equal in all processes, so each makes the same update of the same weights. Only rank 0 reads and writes the
run folder. Processes exchange JSON and plain tensors; nothing is pickled.
"""

import gc
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from clearhead.errors import ConfigError, TrainingError
from clearhead.model.parameters import Weights

BUCKET_NUMEL = 16 * 1024 * 1024  # numbers per all-reduce: larger means fewer calls, but a larger copy
COLLECTIVE_TIMEOUT = timedelta(hours=12)  # other ranks wait while rank 0 validates; torchrun detects dead processes
RENDEZVOUS_TIMEOUT = timedelta(minutes=10)  # torchrun starts all processes at the same time
UNNAMED_RENDEZVOUS = "none"  # torchrun's default name of a rendezvous
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training, with the rank of this one."""

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    """Number of processes on this machine."""
    device: torch.device = CPU
    """Device of this process."""
    mesh: DeviceMesh | None = None
    """All processes, for sharded weights; None for a single process."""

    @property
    def is_rank0(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.rank == 0

    def default_threads(self) -> int:
        """Return torch's number of threads; several processes share the cores of their machine."""
        if self.world_size == 1:
            return torch.get_num_threads()
        return max(1, len(os.sched_getaffinity(0)) // self.local_world_size)

    def broadcast_text(self, text: str) -> str:
        """Return the text of rank 0; the argument of other ranks is ignored."""
        if self.world_size == 1:
            return text
        content = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        length = torch.tensor([len(content) if text else 0])
        self._broadcast(length)
        received = content if self.is_rank0 else torch.empty(int(length), dtype=torch.uint8)
        if int(length):
            self._broadcast(received)
        return received.numpy().tobytes().decode() if int(length) else ""

    def broadcast_tensors(self, tensors: Weights) -> Weights:
        """Return the named tensors of rank 0; the argument of other ranks is ignored."""
        if self.world_size == 1:
            return tensors
        facts = [
            (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for name, tensor in tensors.items()
        ]
        received = json.loads(self.broadcast_text(json.dumps(facts)))
        if not self.is_rank0:
            tensors = {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, dtype, shape in received}
        self.copy_from_rank0(list(tensors.values()))
        return tensors

    def copy_from_rank0(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite these tensors with those of rank 0, in place."""
        if self.world_size > 1:
            for tensor in tensors:
                contiguous = tensor.detach().contiguous()
                self._broadcast(contiguous)
                if not self.is_rank0:
                    tensor.detach().copy_(contiguous)

    def sum(self, *numbers: float) -> list[float]:
        """Return each number summed over all processes."""
        return self._reduce(numbers, dist.ReduceOp.SUM) if self.world_size > 1 else list(numbers)

    def max(self, number: float) -> float:
        """Return the largest value of the number in any process."""
        return self._reduce([number], dist.ReduceOp.MAX)[0] if self.world_size > 1 else number

    @torch.no_grad()
    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors of one dtype over all processes, in place; shapes must be the same in all processes."""
        if self.world_size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with self._explain_lost_connection():
                dist.all_reduce(flat)
            parts = flat.split_with_sizes([tensor.numel() for tensor in bucket])
            torch._foreach_copy_(bucket, [part.view_as(tensor) for part, tensor in zip(parts, bucket, strict=True)])

    def _reduce(self, numbers: Sequence[float], operation: "dist.ReduceOp.RedOpType") -> list[float]:
        values = torch.tensor(numbers, dtype=torch.float64)
        with self._explain_lost_connection():
            dist.all_reduce(values, operation)
        return [float(value) for value in values]

    def _broadcast(self, tensor: Tensor) -> None:
        with self._explain_lost_connection():
            dist.broadcast(tensor, src=0)

    @contextmanager
    def _explain_lost_connection(self) -> Iterator[None]:
        """Convert the connection errors that torch raises when another process has died to TrainingError."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise TrainingError(
                f"process {self.rank} of {self.world_size} lost its connection to the others because one has ended "
                f"({reason}); see the error of that process, then add --resume"
            ) from error


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def init_distributed(device: str = "auto") -> Iterator[ProcessGroup]:
    """Yield the group of all processes that torchrun started, or a single process without torchrun."""
    world_size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if world_size == 1:
        yield ProcessGroup(device=choose_device(device))
        return
    local_rank, local_world_size = (
        int(os.environ.get(name, default)) for name, default in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))
    )
    chosen = choose_device(device, local_rank, local_world_size)
    _rendezvous("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", world_size)
    mesh = init_device_mesh(chosen.type, (world_size,))
    try:
        group = ProcessGroup(dist.get_rank(), world_size, local_world_size, chosen, mesh)
        yield group
        group.max(0)  # a barrier: a process that leaves early closes connections that others still read from
    finally:
        _destroy(mesh)


def _rendezvous(backend: str, world_size: int) -> None:
    """Initialise torch's process group."""
    try:
        store, rank, _ = next(rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT))
        store = fresh_store(store, rank, world_size)
        store.set_timeout(COLLECTIVE_TIMEOUT)
        dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, store=store, rank=rank, world_size=world_size)
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TrainingError(
            f"{world_size} processes cannot find each other: {reason}; start them with torchrun"
        ) from error


def fresh_store(store: Store, rank: int, world_size: int) -> Store:
    """Return an empty part of the store, the same for all processes that were started together.

    torchrun reuses its store when it restarts processes. Without a new part, keys of the earlier processes would be
    read as if the new ones had written them: a process that requests the address of another one too early would get
    the address of a dead process and wait for ever. Therefore each process sends a request under a new random name, and
    rank 0 answers with the name of the part.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"ask/{rank}", name)
        part = store.get(f"answer/{name}").decode()
        store.set(f"heard/{part}/{rank}", "")
        return PrefixStore(part, store)
    missing = set(range(1, world_size))
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT.total_seconds()
    while missing:
        for other in [other for other in missing if store.check([f"ask/{other}"])]:
            store.set(f"answer/{store.get(f'ask/{other}').decode()}", name)  # an answer to an old name is never read
        missing = {other for other in missing if not store.check([f"heard/{name}/{other}"])}
        if missing and time.monotonic() > deadline:
            minutes = RENDEZVOUS_TIMEOUT.total_seconds() / 60
            raise RuntimeError(f"{len(missing)} of {world_size} did not connect within {minutes:.0f} minutes")
        time.sleep(0.02 * bool(missing))
    return PrefixStore(name, store)


def _destroy(mesh: DeviceMesh) -> None:
    """Destroy the process group and with it the threads of gloo.

    Torch ends these threads only when nothing refers to the group any more. Sharded weights refer to it in cycles, and
    torch caches the mesh for ever. If a thread is still waiting for the GIL when Python ends, in order to free the
    tensor of the last exchange, it aborts the process with "terminate called without an active exception".
    """
    dist.destroy_process_group()
    getattr(mesh, "_pg_registry", {}).clear()  # exists in torch 2.13, perhaps not in other versions
    gc.collect()


def choose_device(name: str, local_rank: int = 0, local_world_size: int = 1) -> torch.device:
    """Return the device of this process. `auto` is a separate GPU per process, or the CPU if there is no GPU.

    Raise ConfigError if the requested device does not exist.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {name}: expected auto, cpu or cuda")
    gpus = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if name == "cuda" and not gpus:
        raise ConfigError("--device cuda: torch finds no GPU here; leave it out, or install a CUDA build of torch")
    if not gpus:
        return CPU
    if local_world_size > gpus:
        raise ConfigError(
            f"{local_world_size} processes on this machine, which has {gpus} GPUs; "
            f"start torchrun with --nproc-per-node {gpus}, or add --device cpu"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def was_restarted() -> bool:
    """Return whether torchrun restarted this process after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def torchrun_job() -> str:
    """Return an identifier of the torchrun that may restart this process; empty if restarts are disabled.

    The identifier does not change when processes are restarted. It is the name of the rendezvous, which --standalone
    makes unique. Without a name, it is derived from the torchrun process, which does not exist on other machines: if
    rank 0 moves to another machine, the run is not recognised and is refused.
    """
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) < 1:
        return ""
    name = os.environ.get("TORCHELASTIC_RUN_ID", UNNAMED_RENDEZVOUS)
    if name != UNNAMED_RENDEZVOUS:
        return name
    parent, started = os.getppid(), ""
    with suppress(OSError, IndexError):  # not Linux
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{name} {parent} {started}".strip()


def is_first_process() -> bool:
    """Return whether this process is rank 0, also before the process group is initialized."""
    return os.environ.get("RANK", "0") == "0"


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of consecutive tensors of at most BUCKET_NUMEL numbers, or of one larger tensor."""
    bucket: list[Tensor] = []
    numel = 0
    for tensor in tensors:
        if bucket and numel + tensor.numel() > BUCKET_NUMEL:
            yield bucket
            bucket, numel = [], 0
        bucket.append(tensor)
        numel += tensor.numel()
    if bucket:
        yield bucket
