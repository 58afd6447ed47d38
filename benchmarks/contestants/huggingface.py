"""Hugging Face `MarianMTModel`, the architecture of its translation models."""

from typing import Any, cast

import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from benchmarks.contestants.torch_peer import LogitsLoss, LossModule, TorchPeer, pad
from benchmarks.harness.protocol import Task, serve


class MarianLoss(LogitsLoss):
    """Marian's logits with torch's loss, which is faster than the label smoother of the library's Trainer."""

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        # Padding follows the target, so causal attention needs no decoder mask and can use the faster kernel.
        mask = src != self.task.pad_id
        output = self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in, use_cache=False)
        return cast(Tensor, output.logits)


def marian_config(task: Task) -> MarianConfig:
    return MarianConfig(  # type: ignore[call-arg]
        vocab_size=task.vocab_size,
        d_model=task.model_dim,
        encoder_layers=task.num_layers,
        decoder_layers=task.num_layers,
        encoder_attention_heads=task.num_heads,
        decoder_attention_heads=task.num_heads,
        encoder_ffn_dim=task.inner_dim,
        decoder_ffn_dim=task.inner_dim,
        dropout=task.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        max_position_embeddings=task.max_positions,
        scale_embedding=True,
        init_std=task.model_dim**-0.5,
        pad_token_id=task.pad_id,
        bos_token_id=task.start_id,
        eos_token_id=task.end_id,
        decoder_start_token_id=task.start_id,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )


def generation_config(task: Task, beam: int) -> GenerationConfig:
    return GenerationConfig(  # type: ignore[no-untyped-call]
        num_beams=beam,
        do_sample=False,
        use_cache=True,
        min_new_tokens=task.output_tokens,
        max_new_tokens=task.output_tokens,
        length_penalty=task.alpha,
        pad_token_id=task.pad_id,
        bos_token_id=task.start_id,
        eos_token_id=task.end_id,
        decoder_start_token_id=task.start_id,
    )


class HuggingFace(TorchPeer):
    name = "Hugging Face Marian"
    notes = "post-norm (it supports no other), so 2 norms fewer; sdpa attention, KV cache; generate()"

    @staticmethod
    def version() -> str:
        return str(transformers.__version__)

    def build(self) -> LossModule:
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        return MarianLoss(MarianMTModel(marian_config(self.task)), self.task)

    @torch.inference_mode()
    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        task, model = self.task, cast(Any, self.module.model)
        model.eval()
        settings = generation_config(task, beam)
        num_tokens = 0
        for first in range(0, len(sources), batch):
            src = pad(sources[first : first + batch], task.pad_id)
            output = model.generate(src, attention_mask=(src != task.pad_id).long(), generation_config=settings)
            num_tokens += int((output[:, 1:] != task.end_id).sum())
        return num_tokens


if __name__ == "__main__":
    serve(HuggingFace)
