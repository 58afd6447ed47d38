"""Several processes that train one model together, as torchrun starts them, on one machine or on many.

A batch is cut into one part for each replica of each process (`replicas.py`). Every process computes the gradients of
its own parts, and flat buffers of them are summed by one all-reduce an update. Torch's DistributedDataParallel is not
used: it averages over processes, where the sum over the tokens of the whole update is wanted; it communicates in the
one backward pass of one module, where here several replicas have theirs, in pieces where memory is short, or none where
a batch has fewer examples than there are parts; and it does so for every batch, where accumulated ones need it once. It
would communicate while the backward pass still runs, which is what this gives away.

Sums come out equal in all processes, so that each makes the same update of the same weights. The first process alone
reads and writes the folder of a run. What is told is JSON and plain tensors; nothing is pickled.
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

BUCKET = 16 * 1024 * 1024  # numbers that are summed at once: fewer calls, at the price of a copy of that size
PATIENCE = timedelta(hours=12)  # the others wait while the first validates; torchrun sees to processes that died
MEETING = timedelta(minutes=10)  # until all have found each other; torchrun starts them at the same time
NAMELESS = "none"  # what torchrun calls a rendezvous without a name
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training, as one of them sees them."""

    rank: int = 0
    count: int = 1
    local_count: int = 1
    """How many of them share this machine."""
    device: torch.device = CPU
    """Where this one computes."""
    mesh: DeviceMesh | None = None
    """All of them, as torch wants them for weights that are divided; none where there is one process."""

    @property
    def is_first(self) -> bool:
        """Whether this is the one that reads and writes the run."""
        return self.rank == 0

    def threads(self) -> int:
        """As many as torch takes by itself; several processes divide the cores of a machine between them."""
        if self.count == 1:
            return torch.get_num_threads()
        return max(1, len(os.sched_getaffinity(0)) // self.local_count)

    def tell(self, text: str) -> str:
        """What the first one says; what the others say is not listened to."""
        if self.count == 1:
            return text
        spoken = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        length = torch.tensor([len(spoken) if text else 0])
        self._send(length)
        heard = spoken if self.is_first else torch.empty(int(length), dtype=torch.uint8)
        if int(length):
            self._send(heard)
        return heard.numpy().tobytes().decode() if int(length) else ""

    def share(self, tensors: Weights) -> Weights:
        """The first one's tensors by name; the others need not know which there are."""
        if self.count == 1:
            return tensors
        facts = [
            (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for name, tensor in tensors.items()
        ]
        listed = json.loads(self.tell(json.dumps(facts)))
        if not self.is_first:
            tensors = {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, dtype, shape in listed}
        self.copy(list(tensors.values()))
        return tensors

    def copy(self, tensors: Sequence[Tensor]) -> None:
        """Makes these tensors equal to the first one's, in place."""
        if self.count > 1:
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                self._send(whole)
                if not self.is_first:
                    tensor.detach().copy_(whole)

    def sum(self, *numbers: float) -> list[float]:
        """Each number summed over all processes."""
        return self._reduce(numbers, dist.ReduceOp.SUM) if self.count > 1 else list(numbers)

    def largest(self, number: float) -> float:
        """The largest that any of them has."""
        return self._reduce([number], dist.ReduceOp.MAX)[0] if self.count > 1 else number

    @torch.no_grad()
    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Sums tensors of one type over all processes, in place; all give tensors of the same shapes."""
        if self.count == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with self._connected():
                dist.all_reduce(flat)
            parts = flat.split_with_sizes([tensor.numel() for tensor in bucket])
            torch._foreach_copy_(bucket, [part.view_as(tensor) for part, tensor in zip(parts, bucket, strict=True)])

    def _reduce(self, numbers: Sequence[float], how: "dist.ReduceOp.RedOpType") -> list[float]:
        together = torch.tensor(numbers, dtype=torch.float64)
        with self._connected():
            dist.all_reduce(together, how)
        return [float(number) for number in together]

    def _send(self, tensor: Tensor) -> None:
        with self._connected():
            dist.broadcast(tensor, src=0)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Where another process died, torch complains of a connection; whoever died says why."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[0]
            raise TrainingError(
                f"process {self.rank} of {self.count} lost the others, of which one has ended ({reason}); "
                "see what that one said, then add --resume"
            ) from error


ALONE = ProcessGroup()


@contextmanager
def init_distributed(device: str = "auto") -> Iterator[ProcessGroup]:
    """All processes that torchrun started, once each of them is here; without torchrun this one alone."""
    count = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    local_rank, local_count = (int(os.environ.get(name, default)) for name, default in _LOCAL)
    if count == 1:
        yield ProcessGroup(device=choose_device(device))
        return
    chosen = choose_device(device, local_rank, local_count)
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
    try:
        store, rank, _ = next(rendezvous("env://", timeout=MEETING))
        store = unused(store, rank, count)
        store.set_timeout(PATIENCE)
        dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=count)
    except (ValueError, RuntimeError) as error:
        raise TrainingError(
            f"{count} processes cannot find each other: {str(error).strip().splitlines()[0]}; start them with torchrun"
        ) from error
    mesh = init_device_mesh(chosen.type, (count,))
    try:
        processes = ProcessGroup(dist.get_rank(), count, local_count, chosen, mesh)
        yield processes
        processes.largest(0)  # all are done: who leaves early closes connections that others still read from
    finally:
        _leave(mesh)


def unused(store: Store, rank: int, count: int) -> Store:
    """A part of the store that nobody has written to yet, the same for all processes that were started together.

    torchrun keeps its store when it starts processes again. What those before them left there would be read as if the
    new ones had written it: who asks too early for the address of another gets that of a dead one, and waits for ever.
    So each process asks by a name of its own, and the first one answers with the name of the part.
    """
    name = uuid.uuid4().hex
    if rank:
        store.set(f"ask/{rank}", name)
        part = store.get(f"answer/{name}").decode()
        store.set(f"heard/{part}/{rank}", "")
        return PrefixStore(part, store)
    missing = set(range(1, count))
    ends = time.monotonic() + MEETING.total_seconds()
    while missing:
        for other in [other for other in missing if store.check([f"ask/{other}"])]:
            store.set(f"answer/{store.get(f'ask/{other}').decode()}", name)  # an old name is nobody's any more
        missing = {other for other in missing if not store.check([f"heard/{name}/{other}"])}
        if missing and time.monotonic() > ends:
            raise RuntimeError(
                f"{len(missing)} of {count} did not come within {MEETING.total_seconds() / 60:.0f} minutes"
            )
        time.sleep(0.02 * bool(missing))
    return PrefixStore(name, store)


def _leave(mesh: DeviceMesh) -> None:
    """Destroys the group, and with it the threads of gloo.

    Torch ends these only when nothing refers to the group any more. Divided weights do so in cycles, and the mesh for
    ever, for torch caches it. A thread that lives on and still waits for Python's lock, to give back the tensor of the
    last exchange, aborts the whole process when Python ends: "terminate called without an active exception".
    """
    dist.destroy_process_group()
    getattr(mesh, "_pg_registry", {}).clear()  # of torch 2.13; others may have none
    gc.collect()


_LOCAL = (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"))


def choose_device(name: str, local_rank: int = 0, local_count: int = 1) -> torch.device:
    """auto: a GPU of its own for each process of this machine where there are some, else the CPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {name}: expected auto, cpu or cuda")
    found = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if name == "cuda" and not found:
        raise ConfigError("--device cuda: torch finds no GPU here; leave it out, or install a CUDA build of torch")
    if not found:
        return CPU
    if local_count > found:
        raise ConfigError(
            f"{local_count} processes on this machine, which has {found} GPUs; "
            f"start torchrun with --nproc-per-node {found}, or add --device cpu"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def was_restarted() -> bool:
    """Whether torchrun started this process again after one had died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def job() -> str:
    """A name for the torchrun that started this process and may start it again, the same when it does; else nothing.

    It is the name of the rendezvous, which is new each time with --standalone. Where nobody gave one it is the very
    process, which another machine has not: a run whose first process moves there is not known any more, and refused.
    """
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) < 1:
        return ""
    name = os.environ.get("TORCHELASTIC_RUN_ID", NAMELESS)
    if name != NAMELESS:
        return name
    parent, began = os.getppid(), ""
    with suppress(OSError, IndexError):  # not Linux
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{name} {parent} {began}".strip()


def is_first_process() -> bool:
    """Whether this process speaks for all, also before they found each other."""
    return os.environ.get("RANK", "0") == "0"


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours together, up to a size."""
    bucket: list[Tensor] = []
    numbers = 0
    for tensor in tensors:
        if bucket and numbers + tensor.numel() > BUCKET:
            yield bucket
            bucket, numbers = [], 0
        bucket.append(tensor)
        numbers += tensor.numel()
    if bucket:
        yield bucket
