"""Sentence embeddings of all-MiniLM-L6-v2 from token ids: native engine, CTranslate2, onnxruntime, transformers.

    {"command": "open", "kind": "native", "bundle": ..., "huggingface": ..., "lines": ..., "threads": 2,
     "workers": 1}                                                       -> nothing
    {"command": "embed", "batch": 32}                                     -> sentences, tokens, seconds
    {"command": "vectors", "batch": 32}                                   -> the first 20 vectors

Peers compute padded batches of sentences of similar length; the native engine receives all sentences in one call. With
several workers, each computes a batch with an equal share of the threads.
"""

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.protocol import answer_with
from clearhead.api import load
from clearhead.engines.native_engine import NativeEncoderEngine

Vectors = NDArray[np.float32]
Rows = list[list[int]]


class Embedding(ABC):
    """Engine with a loaded model, and `workers` that compute batches with `threads` in total."""

    workers = 1

    @abstractmethod
    def __init__(self, bundle: Path, huggingface: Path, threads: int, workers: int) -> None: ...

    @abstractmethod
    def embed_batch(self, ids_BS: NDArray[np.int64], is_token_BS: NDArray[np.bool_]) -> Vectors:
        """Return the mean state of each row, [B, D]."""

    def embed(self, rows: Rows, batch: int) -> Vectors:
        """Return the mean state of each row, [N, D]."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))

        def embed_from(first: int) -> Vectors:
            batch_rows = [rows[index] for index in order[first : first + batch]]
            longest = max(map(len, batch_rows))
            ids_BS = np.zeros((len(batch_rows), longest), np.int64)
            for row, ids in zip(ids_BS, batch_rows, strict=True):
                row[: len(ids)] = ids
            lengths_B1 = np.array([[len(ids)] for ids in batch_rows])
            return self.embed_batch(ids_BS, np.arange(longest) < lengths_B1)

        starts = range(0, len(order), batch)
        if self.workers > 1:
            with ThreadPoolExecutor(self.workers) as pool:
                parts = [*pool.map(embed_from, starts)]
        else:
            parts = [*map(embed_from, starts)]
        vectors_ND = np.empty((len(rows), parts[0].shape[1]), np.float32)
        vectors_ND[order] = np.concatenate(parts)
        return vectors_ND


def mean(states_BSD: Vectors, is_token_BS: NDArray[np.bool_]) -> Vectors:
    """Return the mean over the positions that are not padding."""
    mask_BS1 = is_token_BS[:, :, None].astype(np.float32)
    return (states_BSD * mask_BS1).sum(1) / mask_BS1.sum(1)  # type: ignore[no-any-return]


class Native(Embedding):
    """The C++ core."""

    def __init__(self, bundle: Path, huggingface: Path, threads: int, workers: int) -> None:
        self.engine = NativeEncoderEngine(load(bundle).weights.native_model("float32"), threads)

    def embed(self, rows: Rows, batch: int) -> Vectors:
        return self.engine.mean_states(rows)

    def embed_batch(self, ids_BS: NDArray[np.int64], is_token_BS: NDArray[np.bool_]) -> Vectors:
        raise NotImplementedError("the native engine takes all rows at once")


class CTranslate2(Embedding):
    """CTranslate2's encoder, converted with its own converter."""

    def __init__(self, bundle: Path, huggingface: Path, threads: int, workers: int) -> None:
        import ctranslate2  # type: ignore[import-untyped]
        from ctranslate2.converters import TransformersConverter  # type: ignore[import-untyped]

        converted = bundle.parent / "ctranslate2"
        if not converted.exists():
            TransformersConverter(str(huggingface)).convert(str(converted))
        self.library, self.workers = ctranslate2, workers
        self.encoder = ctranslate2.Encoder(
            str(converted), inter_threads=workers, intra_threads=threads // workers, compute_type="float32"
        )

    def embed_batch(self, ids_BS: NDArray[np.int64], is_token_BS: NDArray[np.bool_]) -> Vectors:
        ids = self.library.StorageView.from_array(ids_BS.astype(np.int32))
        lengths = self.library.StorageView.from_array(is_token_BS.sum(1).astype(np.int32))
        return mean(np.array(self.encoder.forward_batch(ids, lengths).last_hidden_state), is_token_BS)


class OnnxRuntime(Embedding):
    """onnxruntime over clearhead's export."""

    def __init__(self, bundle: Path, huggingface: Path, threads: int, workers: int) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        exported = bundle.parent / "onnx"
        if not exported.exists():
            load(bundle).export(exported, "onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads // workers
        self.workers = workers
        [graph] = exported.glob("*.onnx")
        self.session = onnxruntime.InferenceSession(str(graph), options)

    def embed_batch(self, ids_BS: NDArray[np.int64], is_token_BS: NDArray[np.bool_]) -> Vectors:
        return self.session.run(None, {"ids": ids_BS})[0]  # type: ignore[no-any-return]


class Transformers(Embedding):
    """`BertModel`."""

    def __init__(self, bundle: Path, huggingface: Path, threads: int, workers: int) -> None:
        import torch
        from transformers import AutoModel

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.tensor = torch.from_numpy
        self.network: Any = AutoModel.from_pretrained(huggingface).eval()

    def embed_batch(self, ids_BS: NDArray[np.int64], is_token_BS: NDArray[np.bool_]) -> Vectors:
        output = self.network(self.tensor(ids_BS), attention_mask=self.tensor(is_token_BS.astype(np.int64)))
        return mean(output.last_hidden_state.numpy(), is_token_BS)


KINDS: dict[str, type[Embedding]] = {
    "native": Native, "ctranslate2": CTranslate2, "onnxruntime": OnnxRuntime, "transformers": Transformers,
}  # fmt: skip


class Server:
    """Server with one method per command."""

    engine: Embedding

    def open(
        self, kind: str, bundle: str, huggingface: str, lines: str, threads: int, workers: int = 1
    ) -> dict[str, Any]:
        """Load the model and tokenize the sentences."""
        from clearhead.tasks.registry import get_task

        model = load(bundle)
        texts = Path(lines).read_text(encoding="utf-8").splitlines()
        self.rows: Rows = get_task(model.config.task).codec.encode(model.tokenizer, texts)
        self.engine = KINDS[kind](Path(bundle), Path(huggingface), threads, workers)
        return {}

    def embed(self, batch: int) -> dict[str, Any]:
        """Embed all sentences."""
        began = time.perf_counter()
        self.engine.embed(self.rows, batch)
        seconds = time.perf_counter() - began
        return {"sentences": len(self.rows), "tokens": sum(map(len, self.rows)), "seconds": seconds}

    def vectors(self, batch: int) -> dict[str, Any]:
        """Return some of the vectors, to compare engines."""
        return {"vectors": self.engine.embed(self.rows[:20], batch).tolist()}


if __name__ == "__main__":
    answer_with(Server())
