"""JoeyNMT's model, loss and search, without its data loader and trainer."""

from importlib import metadata
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from torch import Tensor

from benchmarks.contestants.torch_peer import LossModule, TorchPeer, pad
from benchmarks.harness.protocol import Task, serve


def vocabulary(task: Task) -> Vocabulary:
    """Return a vocabulary with the special tokens of the task and arbitrary names for the other ids."""
    specials = {"pad": task.pad_id, "unk": task.unk_id, "bos": task.start_id, "eos": task.end_id}
    names = {f"{name}_token": f"<{name}>" for name in specials}
    ids = {f"{name}_id": index for name, index in specials.items()}
    in_order = [f"<{name}>" for name, _ in sorted(specials.items(), key=lambda item: item[1])]
    tokens = in_order + [f"token{index}" for index in range(len(in_order), task.vocab_size)]
    return _Ordered(tokens, SimpleNamespace(**names, **ids, sep_token=None, sep_id=None, lang_tags=[]))


class _Ordered(Vocabulary):
    """Vocabulary in the given order; JoeyNMT's puts <unk> before <pad> regardless of the configured ids."""

    def add_tokens(self, tokens: list[str]) -> None:
        tokens = tokens[len(self.specials) :]
        self._itos, self._stoi = list(tokens), {token: index for index, token in enumerate(tokens)}


def stack(task: Task) -> dict[str, Any]:
    """Return the settings of the encoder, which are also those of the decoder."""
    return {
        "type": "transformer",
        "num_layers": task.num_layers,
        "num_heads": task.num_heads,
        "hidden_size": task.model_dim,
        "ff_size": task.inner_dim,
        "dropout": task.dropout,
        "layer_norm": task.norm,
        "activation": "relu",
        "embeddings": {"embedding_dim": task.model_dim, "scale": True, "dropout": task.dropout},
    }


class JoeyLoss(LossModule):
    """JoeyNMT's loss, the KL divergence from the smoothed targets."""

    def set_smoothing(self, smoothing: float) -> None:
        self.model.loss_function = ("crossentropy", smoothing)

    def forward(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
        pad_id = self.task.pad_id
        loss, *_ = self.model(
            return_type="loss",
            src=src,
            src_mask=(src != pad_id).unsqueeze(1),
            src_length=(src != pad_id).sum(1),
            trg_input=tgt_in,
            trg=tgt_out,
            trg_mask=(tgt_out != pad_id).unsqueeze(1),
        )
        return loss


class JoeyNMT(TorchPeer):
    name = "JoeyNMT"
    notes = "dropout also on attention weights and inside the feed-forward network; no KV cache"

    @staticmethod
    def version() -> str:
        return metadata.version("joeynmt")

    def build(self) -> LossModule:
        words = vocabulary(self.task)
        config = {
            "encoder": stack(self.task),
            "decoder": stack(self.task),
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": self.task.model_dim**-0.5,
        }
        return JoeyLoss(build_model(config, words, words), self.task)

    @torch.inference_mode()
    def decode(self, sources: list[list[int]], beam: int, batch: int) -> int:
        task, model = self.task, self.module.model
        model.eval()
        num_tokens = 0
        for first in range(0, len(sources), batch):
            rows = sources[first : first + batch]
            output, _, _ = search(
                model,
                self._joey_batch(rows),
                max_output_length=task.output_tokens,
                min_output_length=task.output_tokens,
                beam_size=beam,
                beam_alpha=task.alpha,
            )
            num_tokens += int((output != task.end_id).sum())
        return num_tokens

    def _joey_batch(self, rows: list[list[int]]) -> Batch:
        return Batch(
            src=pad(rows, self.task.pad_id),
            src_length=torch.tensor([len(row) for row in rows]),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(rows)),
            device=torch.device("cpu"),
            pad_index=self.task.pad_id,
            eos_index=self.task.end_id,
            is_train=False,
        )


if __name__ == "__main__":
    serve(JoeyNMT)
