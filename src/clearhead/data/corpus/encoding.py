"""Pairs of text to pairs of ids: a block in this process, or a corpus on disk by as many processes as there are cores.

Worker processes are started with `python -m clearhead.data.corpus.encoding` instead of being forked, so locks held by
threads of this process cannot block them, and the user's script needs no `__main__` guard. Worker k modulo n encodes
block k; blocks are read in order, so the result does not depend on the number of workers.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from clearhead.data.corpus.cached_corpus import CachedPairs
from clearhead.data.corpus.id_arrays import (
    ArrayWriter,
    IdArrays,
    MappedArrays,
    PairIds,
    PairIdsWriter,
    Work,
    cached_arrays,
    ignore_progress,
    open_pair_ids,
)
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import PLACES_SHOWN, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError

TOKENIZER, WANTED = "tokenizer.json", "wanted"


@dataclass(frozen=True)
class EncodingSettings:
    """How pairs become ids."""

    max_tokens: int
    """A pair with a side of so many pieces or more is left out, for the end takes a place too."""
    prefixes: tuple[int, ...] = ()
    """The piece before the sources of each file; none: no such piece."""


@dataclass(frozen=True)
class EncodedBlock:
    """Pairs as ids, and the lines of those that were too long."""

    store: PairIds
    long_lines: list[int]


def encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, how: EncodingSettings) -> tuple[EncodedBlock, list[Pair]]:
    """The pairs as ids, and those that were kept."""
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    if how.prefixes:
        sources = [[how.prefixes[pair.corpus], *ids] for pair, ids in zip(pairs, sources, strict=True)]
    targets: list[list[int]] = [[]] * len(pairs)
    if any(pair.target for pair in pairs):  # documents have none
        targets = tokenizer.target.encode_batch([pair.target for pair in pairs])
    is_short = [max(len(source), len(target)) < how.max_tokens for source, target in zip(sources, targets, strict=True)]
    kept = [index for index, fits in enumerate(is_short) if fits]
    store = PairIds(
        IdArrays.build(sources[index] for index in kept),
        IdArrays.build(targets[index] for index in kept),
        np.array([pairs[index].line for index in kept], dtype=np.int64),
        np.array([pairs[index].corpus for index in kept], dtype=np.int32),
    )
    long_lines = [pair.line for pair, fits in zip(pairs, is_short, strict=True) if not fits]
    return EncodedBlock(store, long_lines), [pairs[index] for index in kept]


def encode_cached(
    pairs: CachedPairs,
    tokenizer: Tokenizer,
    how: EncodingSettings,
    skips: SkipReport,
    work: Work = ignore_progress,
    *,
    workers: int = 0,
    block: int = 0,
    noun: str = "pairs",
) -> PairIds:
    """The ids of a corpus on disk, beside it: made now by so many processes (0: one a core), or found there."""
    block = block or pairs.block_size
    text = tokenizer.to_json()
    wanted = np.packbits(pairs.wanted_N).tobytes()
    facts = json.dumps([pairs.columns.key, asdict(how), text]).encode()
    key = hashlib.blake2b(facts + wanted, digest_size=12).hexdigest()

    def fill(writer: ArrayWriter) -> None:
        made, long_lines = PairIdsWriter(writer), list[int]()
        (writer.folder / TOKENIZER).write_text(text, encoding="utf-8")
        pairs.wanted_N.tofile(writer.folder / WANTED)
        done, count = 0, 0
        for found in _blocks(_Job(pairs, writer.folder, how, block), tokenizer, workers or core_count()):
            made.append(found.store)
            count += len(found.long_lines)
            long_lines += found.long_lines[: max(0, PLACES_SHOWN - len(long_lines))]
            done = min(done + block, pairs.total)
            work(f"cutting {noun} into pieces", done, pairs.total)
        writer.facts = {"long": count, "long_lines": long_lines}
        for name in (TOKENIZER, WANTED):  # the processes are done with them
            (writer.folder / name).unlink()

    folder = pairs.columns.folder
    types = PairIdsWriter.types(max(tokenizer.vocab_size, tokenizer.target.vocab_size))
    columns = cached_arrays(folder.with_name(f"{folder.name}-{key}"), key, types, fill)
    _account(columns, how, skips)
    return open_pair_ids(columns)


def _account(columns: MappedArrays, how: EncodingSettings, skips: SkipReport) -> None:
    """Tells `skips` of the pairs that were too long, whenever that was."""
    lines, count = columns.facts["long_lines"], int(columns.facts["long"])
    for number in range(count):
        skips.add(too_long(how), "pairs", int(lines[min(number, len(lines) - 1)]))


def too_long(how: EncodingSettings) -> str:
    """Why a pair is left out."""
    return f"longer than {how.max_tokens} pieces"


def core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Job:
    """What the processes do together."""

    pairs: CachedPairs
    folder: Path
    how: EncodingSettings
    block: int

    def to_json(self) -> dict[str, object]:
        """What a process is told."""
        pairs, folder = str(self.pairs.columns.folder), str(self.folder)
        return {"pairs": pairs, "folder": folder, "how": asdict(self.how), "block": self.block}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "_Job":
        """What `to_json` gave; the mask lies in the folder."""
        folder, columns = Path(told["folder"]), MappedArrays.open(Path(told["pairs"]))
        assert columns is not None
        pairs = CachedPairs(columns, np.fromfile(folder / WANTED, dtype=np.bool_))
        return cls(
            pairs, folder, EncodingSettings(told["how"]["max_tokens"], tuple(told["how"]["prefixes"])), told["block"]
        )

    def blocks(self, tokenizer: Tokenizer, first: int = 0, step: int = 1) -> Iterator[EncodedBlock]:
        """Every `step`th block from the first on."""
        for start in range(first * self.block, self.pairs.total, step * self.block):
            yield encode_pairs(self.pairs.block(start, start + self.block), tokenizer, self.how)[0]


def _blocks(job: _Job, tokenizer: Tokenizer, workers: int) -> Iterator[EncodedBlock]:
    """All blocks in their order."""
    count = -(-job.pairs.total // job.block)
    workers = min(workers, count)
    if workers > 1:
        try:
            with ExitStack() as stack:
                running = [stack.enter_context(_EncodingWorker(job, worker, workers)) for worker in range(workers)]
                for number in range(count):
                    yield running[number % workers].block()
            return
        except _NoProcessError:
            pass  # nothing was made yet
    yield from job.blocks(tokenizer)


class _NoProcessError(Exception):
    """This system starts no further processes."""


class _EncodingWorker:
    """A process that makes blocks; it ends with this one, for nobody reads from it any more then."""

    def __init__(self, job: _Job, worker: int, workers: int) -> None:
        source = str(Path(__file__).parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        # One core each, so the library shall not start threads of its own.
        more = {"PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        command = [
            sys.executable,
            "-m",
            "clearhead.data.corpus.encoding",
            json.dumps(job.to_json()),
            str(worker),
            str(workers),
        ]
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=os.environ | more
            )
        except OSError as error:
            raise _NoProcessError from error
        assert self.process.stdout is not None
        self.stream: BinaryIO = self.process.stdout  # type: ignore[assignment]

    def __enter__(self) -> "_EncodingWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.stream.close()

    def block(self) -> EncodedBlock:
        """The next one."""
        found = _read_block(self.stream)
        if found is None:
            code = self.process.wait()
            if code >= 0:
                raise RuntimeError(f"a process that cuts text into pieces ended with exit code {code}")
            raise DataError(
                f"a process that cuts text into pieces was ended by {signal.Signals(-code).name}, "
                "perhaps for lack of memory; free some, and start again"
            )
        return found


def _write_block(block: EncodedBlock, stream: BinaryIO) -> None:
    """Lengths, then the arrays end to end."""
    store = block.store
    assert store.corpus_N is not None
    arrays = [store.source.ids, store.source.offsets, store.target.ids, store.target.offsets, store.lines,
              store.corpus_N, np.asarray(block.long_lines, dtype=np.int64)]  # fmt: skip
    stream.write(np.array([array.nbytes for array in arrays], dtype=np.int64).tobytes())
    for array in arrays:
        stream.write(np.ascontiguousarray(array).data)
    stream.flush()


_BLOCK_TYPES = (np.int32, np.int64, np.int32, np.int64, np.int64, np.int32, np.int64)


def _read_block(stream: BinaryIO) -> EncodedBlock | None:
    """What `_write_block` wrote, or nothing where the stream ends."""
    head = stream.read(8 * len(_BLOCK_TYPES))
    sizes = np.frombuffer(head, dtype=np.int64).tolist() if len(head) == 8 * len(_BLOCK_TYPES) else []
    parts = [stream.read(size) for size in sizes]
    if not sizes or [len(part) for part in parts] != sizes:
        return None
    arrays = [np.frombuffer(part, dtype=kind) for part, kind in zip(parts, _BLOCK_TYPES, strict=True)]
    source, target = IdArrays(arrays[0], arrays[1]), IdArrays(arrays[2], arrays[3])
    return EncodedBlock(PairIds(source, target, arrays[4], arrays[5]), arrays[6].tolist())


def run_worker(job: _Job, worker: int, workers: int, stream: BinaryIO) -> None:
    """One process: every block that is its own, written to the stream."""
    tokenizer = Tokenizer.from_json((job.folder / TOKENIZER).read_text(encoding="utf-8"))
    for block in job.blocks(tokenizer, worker, workers):
        _write_block(block, stream)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    try:
        run_worker(_Job.from_json(json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]), sys.stdout.buffer)
    except BrokenPipeError:  # which is gone
        os._exit(1)
