"""Pairs of text to pairs of token ids: a block in this process, or a cached corpus by one process per core.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
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
    ProgressCallback,
    cached_arrays,
    ignore_progress,
    open_pair_ids,
)
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import MAX_LOCATIONS, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError

TOKENIZER_FILE, SELECTION_FILE = "tokenizer.json", "selection"


@dataclass(frozen=True)
class EncodingSettings:
    """Length limit and prefixes for the encoding of pairs."""

    max_tokens: int
    """Pairs with a side of this many tokens or more are skipped; the limit includes the end token."""
    prefixes: tuple[int, ...] = ()
    """Token id before the sources of each file; empty: none."""


@dataclass(frozen=True)
class EncodedBlock:
    """The token ids of a block of pairs, and the lines of the pairs that were too long."""

    pair_ids: PairIds
    too_long_lines: list[int]


def encode_pairs(
    pairs: Sequence[Pair], tokenizer: Tokenizer, settings: EncodingSettings
) -> tuple[EncodedBlock, list[Pair]]:
    """Return the encoded pairs, and the pairs that were not too long."""
    sources = tokenizer.encode_batch([pair.source for pair in pairs])
    if settings.prefixes:
        sources = [[settings.prefixes[pair.file_index], *ids] for pair, ids in zip(pairs, sources, strict=True)]
    targets: list[list[int]] = [[]] * len(pairs)
    if any(pair.target for pair in pairs):  # documents have none
        targets = tokenizer.target.encode_batch([pair.target for pair in pairs])
    fits = [
        max(len(source), len(target)) < settings.max_tokens for source, target in zip(sources, targets, strict=True)
    ]
    short = [index for index, is_short in enumerate(fits) if is_short]
    pair_ids = PairIds(
        IdArrays.build(sources[index] for index in short),
        IdArrays.build(targets[index] for index in short),
        np.array([pairs[index].line for index in short], dtype=np.int64),
        np.array([pairs[index].file_index for index in short], dtype=np.int32),
    )
    too_long_lines = [pair.line for pair, is_short in zip(pairs, fits, strict=True) if not is_short]
    return EncodedBlock(pair_ids, too_long_lines), [pairs[index] for index in short]


def encode_cached(
    pairs: CachedPairs,
    tokenizer: Tokenizer,
    settings: EncodingSettings,
    skips: SkipReport,
    progress: ProgressCallback = ignore_progress,
    *,
    workers: int = 0,
    block: int = 0,
    record_name: str = "pairs",
) -> PairIds:
    """Return the token ids of a cached corpus, from the cache if it contains them.

    Otherwise they are computed by `workers` processes (0: one per core) and stored next to the corpus. Pairs that are
    too long are added to `skips`.
    """
    block = block or pairs.block_size
    selection = np.packbits(pairs.selected_N).tobytes()
    inputs = json.dumps([pairs.arrays.key, asdict(settings), tokenizer.to_json()]).encode()
    key = hashlib.blake2b(inputs + selection, digest_size=12).hexdigest()

    def fill(writer: ArrayWriter) -> None:
        job = _EncodingJob(pairs, writer.folder, settings, block)
        _write_ids(writer, job, tokenizer, workers or available_cores(), partial(progress, f"tokenizing {record_name}"))

    folder = pairs.arrays.folder
    types = PairIdsWriter.types(max(tokenizer.vocab_size, tokenizer.target.vocab_size))
    arrays = cached_arrays(folder.with_name(f"{folder.name}-{key}"), key, types, fill)
    _add_skipped(arrays, settings, skips)
    return open_pair_ids(arrays)


def _write_ids(
    writer: ArrayWriter,
    job: "_EncodingJob",
    tokenizer: Tokenizer,
    workers: int,
    progress: Callable[[int, int], None],
) -> None:
    """Write the token ids of all blocks, and the number and first lines of the pairs that are too long."""
    (writer.folder / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
    job.pairs.selected_N.tofile(writer.folder / SELECTION_FILE)
    ids_writer, too_long_lines = PairIdsWriter(writer), list[int]()
    done, too_long_count, total = 0, 0, job.pairs.total
    for encoded in _encode_blocks(job, tokenizer, workers):
        ids_writer.append(encoded.pair_ids)
        too_long_count += len(encoded.too_long_lines)
        too_long_lines += encoded.too_long_lines[: max(0, MAX_LOCATIONS - len(too_long_lines))]
        done = min(done + job.block, total)
        progress(done, total)
    writer.metadata = {"too_long": too_long_count, "too_long_lines": too_long_lines}
    for name in (TOKENIZER_FILE, SELECTION_FILE):  # only the worker processes needed them
        (writer.folder / name).unlink()


def _add_skipped(arrays: MappedArrays, settings: EncodingSettings, skips: SkipReport) -> None:
    """Add the pairs that were too long, according to the metadata of the token ids, to `skips`."""
    lines, count = arrays.metadata["too_long_lines"], int(arrays.metadata["too_long"])
    for number in range(count):
        skips.add(skip_reason(settings), "pairs", int(lines[min(number, len(lines) - 1)]))


def skip_reason(settings: EncodingSettings) -> str:
    """Return why a pair that is too long is skipped."""
    return f"longer than {settings.max_tokens} tokens"


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _EncodingJob:
    """Description of the encoding of one corpus, which is divided into blocks among the worker processes."""

    pairs: CachedPairs
    folder: Path
    settings: EncodingSettings
    block: int

    def to_json(self) -> dict[str, object]:
        """Return the job as a JSON object, the argument of a worker process."""
        pairs, folder = str(self.pairs.arrays.folder), str(self.folder)
        return {"pairs": pairs, "folder": folder, "settings": asdict(self.settings), "block": self.block}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "_EncodingJob":
        """Return the job that `to_json` described; the selection of pairs is a file in the folder."""
        folder, arrays = Path(state["folder"]), MappedArrays.open(Path(state["pairs"]))
        assert arrays is not None
        pairs = CachedPairs(arrays, np.fromfile(folder / SELECTION_FILE, dtype=np.bool_))
        settings = EncodingSettings(state["settings"]["max_tokens"], tuple(state["settings"]["prefixes"]))
        return cls(pairs, folder, settings, state["block"])

    def blocks(self, tokenizer: Tokenizer, first: int = 0, step: int = 1) -> Iterator[EncodedBlock]:
        """Iterate over every `step`-th encoded block, beginning with block `first`."""
        for start in range(first * self.block, self.pairs.total, step * self.block):
            yield encode_pairs(self.pairs.block(start, start + self.block), tokenizer, self.settings)[0]


def _encode_blocks(job: _EncodingJob, tokenizer: Tokenizer, workers: int) -> Iterator[EncodedBlock]:
    """Iterate over all encoded blocks in their order."""
    count = -(-job.pairs.total // job.block)
    workers = min(workers, count)
    if workers > 1:
        try:
            with ExitStack() as stack:
                running = [stack.enter_context(_EncodingWorker(job, worker, workers)) for worker in range(workers)]
                for number in range(count):
                    yield running[number % workers].block()
            return
        except _CannotStartWorkerError:
            pass  # no block has been yielded yet
    yield from job.blocks(tokenizer)


class _CannotStartWorkerError(Exception):
    """The system refuses to start a process."""


class _EncodingWorker:
    """A worker process. It ends when this process ends, because its output pipe is then broken."""

    def __init__(self, job: _EncodingJob, worker: int, workers: int) -> None:
        source = str(Path(__file__).parents[2])
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        # One core per process, so the library must not start threads.
        variables = {"PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
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
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=os.environ | variables
            )
        except OSError as error:
            raise _CannotStartWorkerError from error
        assert self.process.stdout is not None
        self.stream: BinaryIO = self.process.stdout  # type: ignore[assignment]

    def __enter__(self) -> "_EncodingWorker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.stream.close()

    def block(self) -> EncodedBlock:
        """Return the next encoded block; raise DataError if the process was killed."""
        encoded = _read_block(self.stream)
        if encoded is None:
            code = self.process.wait()
            if code >= 0:
                raise RuntimeError(f"a tokenization process ended with exit code {code}")
            raise DataError(
                f"a tokenization process was killed by {signal.Signals(-code).name}, possibly for lack of memory; "
                "free memory and start again"
            )
        return encoded


def _write_block(block: EncodedBlock, stream: BinaryIO) -> None:
    """Write a block: the sizes of its arrays in bytes, then the arrays."""
    ids = block.pair_ids
    assert ids.file_index_N is not None
    arrays = [ids.source.ids, ids.source.offsets, ids.target.ids, ids.target.offsets, ids.lines,
              ids.file_index_N, np.asarray(block.too_long_lines, dtype=np.int64)]  # fmt: skip
    stream.write(np.array([array.nbytes for array in arrays], dtype=np.int64).tobytes())
    for array in arrays:
        stream.write(np.ascontiguousarray(array).data)
    stream.flush()


_BLOCK_TYPES = (np.int32, np.int64, np.int32, np.int64, np.int64, np.int32, np.int64)


def _read_block(stream: BinaryIO) -> EncodedBlock | None:
    """Return the next block that `_write_block` wrote; None at the end of the stream."""
    header = stream.read(8 * len(_BLOCK_TYPES))
    sizes = np.frombuffer(header, dtype=np.int64).tolist() if len(header) == 8 * len(_BLOCK_TYPES) else []
    contents = [stream.read(size) for size in sizes]
    if not sizes or [len(content) for content in contents] != sizes:
        return None
    arrays = [np.frombuffer(content, dtype=kind) for content, kind in zip(contents, _BLOCK_TYPES, strict=True)]
    source, target = IdArrays(arrays[0], arrays[1]), IdArrays(arrays[2], arrays[3])
    return EncodedBlock(PairIds(source, target, arrays[4], arrays[5]), arrays[6].tolist())


def run_worker(job: _EncodingJob, worker: int, workers: int, stream: BinaryIO) -> None:
    """Write the blocks of one worker process to the stream."""
    tokenizer = Tokenizer.from_json((job.folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    for block in job.blocks(tokenizer, worker, workers):
        _write_block(block, stream)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    try:
        run_worker(
            _EncodingJob.from_json(json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]), sys.stdout.buffer
        )
    except BrokenPipeError:  # the parent process has ended
        os._exit(1)
