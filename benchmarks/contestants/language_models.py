"""Language models of GPT-2's shape with random weights: native engine, CTranslate2, onnxruntime, transformers.

    {"command": "open", "kind": "native", "folder": ..., "threads": 2, "workers": 1}   -> nothing
    {"command": "generate", "batch": 16, "prompt": 64, "new": 64}          -> tokens, seconds, and the tokens themselves

All except transformers have the same weights and must generate the same tokens. Converted models are stored in the
folder and reused. Several workers, which only CTranslate2 supports, divide the prompts and the threads among them.
"""

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

import clearhead.config
from benchmarks.harness.protocol import answer_with
from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Request
from clearhead.engines.native_engine import NativeEngine
from clearhead.interop import ctranslate2
from clearhead.interop.onnx import generators
from clearhead.model.language_model import LanguageModel
from clearhead.model.parameters import named_weights
from clearhead.runtime import prepare

VOCAB_SIZE = 50257
END = 50256

Prompts = list[list[int]]


def gpt2() -> LanguageModel:
    """Return a language model of GPT-2's shape with random weights from a fixed seed."""
    ids = {"vocab_size": VOCAB_SIZE, "pad_id": END, "eos_id": END, "decoder_start_id": END}
    torch.manual_seed(1)
    return LanguageModel(clearhead.config.build({"model": ids}, preset="gpt2").model).eval()


class Generator(ABC):
    """Engine with a loaded model."""

    @abstractmethod
    def __init__(self, folder: Path, threads: int, workers: int) -> None: ...

    @abstractmethod
    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        """Return `new` tokens after each prompt, by greedy search without the end token."""


class Native(Generator):
    """The C++ core."""

    def __init__(self, folder: Path, threads: int, workers: int) -> None:
        network = gpt2()
        tensors = {name: tensor.detach().numpy() for name, tensor in named_weights(network).items()}
        self.engine = NativeEngine(prepare(network.config, tensors), threads, token_log_probs=False)

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        settings = DecodingConfig(beam_size=1, min_length=new)
        requests = [Request(tuple(prompt), limit=new) for prompt in prompts]
        return [list(hypotheses[0].tokens) for hypotheses in self.engine.run(requests, settings)]


class CTranslate2(Generator):
    """CTranslate2's generator, on a conversion of the same weights."""

    def __init__(self, folder: Path, threads: int, workers: int) -> None:
        import ctranslate2 as library  # type: ignore[import-untyped]

        converted = folder / "gpt2-ctranslate2"
        if not converted.exists():
            converted.mkdir()
            vocabulary = ctranslate2.CTranslate2Vocabulary([str(index) for index in range(VOCAB_SIZE)], (), END)
            ctranslate2.convert(gpt2(), vocabulary, converted)
        self.workers = workers
        self.generator = library.Generator(
            str(converted), inter_threads=workers, intra_threads=threads // workers, compute_type="float32"
        )

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        results = self.generator.generate_batch(
            [[str(token) for token in prompt] for prompt in prompts],
            beam_size=1, sampling_topk=1, max_length=new, min_length=new, include_prompt_in_result=False,
            max_batch_size=-(-len(prompts) // self.workers),
        )  # fmt: skip
        return [[*map(int, result.sequences[0])] for result in results]


class OnnxRuntime(Generator):
    """onnxruntime over clearhead's export: a graph of one step, with the cache as inputs and outputs."""

    def __init__(self, folder: Path, threads: int, workers: int) -> None:
        import onnxruntime  # type: ignore[import-untyped]

        exported = folder / "gpt2-onnx"
        if not exported.exists():
            exported.mkdir()
            generators.write_generator(gpt2(), exported)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(str(exported / "decoder.onnx"), options)
        self.inputs = {each.name: each for each in self.session.get_inputs()}
        self.outputs = [each.name for each in self.session.get_outputs()]

    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        rows = len(prompts)
        past = {
            name: np.zeros((rows, each.shape[1], 0, each.shape[3]), np.float32)
            for name, each in self.inputs.items()
            if name.startswith("past")
        }
        prompt_NS, generated = np.array(prompts, dtype=np.int64), list[Any]()
        for position in range(prompt_NS.shape[1] + new - 1):  # the graph takes one token per call, also for the prompt
            token_N = prompt_NS[:, position] if position < prompt_NS.shape[1] else generated[-1]
            results = self.session.run(None, {"token": token_N[:, None], **past})
            outputs = dict(zip(self.outputs, results, strict=True))
            past = {name: outputs[f"{name}_next"] for name in past}
            if position >= prompt_NS.shape[1] - 1:
                outputs["logits"][:, END] = -np.inf
                generated.append(outputs["logits"].argmax(1))
        return np.stack(generated, 1).tolist()  # type: ignore[no-any-return]


class Transformers(Generator):
    """`GPT2LMHeadModel.generate`, with different random weights."""

    def __init__(self, folder: Path, threads: int, workers: int) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(1)
        torch.set_num_threads(threads)
        kind: Any = GPT2LMHeadModel
        self.network = kind(GPT2Config()).eval()

    @torch.inference_mode()
    def generate(self, prompts: Prompts, new: int) -> list[list[int]]:
        prompt_NS = torch.tensor(prompts)
        output_NS = self.network.generate(
            prompt_NS, attention_mask=torch.ones_like(prompt_NS), do_sample=False, min_new_tokens=new,
            max_new_tokens=new, pad_token_id=END,
        )  # fmt: skip
        return [list(row) for row in output_NS[:, prompt_NS.shape[1] :].tolist()]


KINDS: dict[str, type[Generator]] = {
    "native": Native, "ctranslate2": CTranslate2, "onnxruntime": OnnxRuntime, "transformers": Transformers,
}  # fmt: skip


class Server:
    """Server with one method per command."""

    engine: Generator

    def open(self, kind: str, folder: str, threads: int, workers: int = 1) -> dict[str, Any]:
        """Load the model."""
        self.engine = KINDS[kind](Path(folder), threads, workers)
        return {}

    def generate(self, batch: int, prompt: int, new: int) -> dict[str, Any]:
        """Continue random prompts."""
        prompts = np.random.default_rng(batch).integers(0, END, (batch, prompt)).tolist()
        began = time.perf_counter()
        outputs = self.engine.generate(prompts, new)
        return {"seconds": time.perf_counter() - began, "tokens": sum(map(len, outputs)), "outputs": outputs}


if __name__ == "__main__":
    answer_with(Server())
