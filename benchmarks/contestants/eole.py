"""EOLE's model and loss, without its data loader and trainer."""

import warnings
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from benchmarks.contestants.torch_peer import LogitsLoss, LossModule, TrainingOnlyPeer
from benchmarks.harness.protocol import Task, serve

with warnings.catch_warnings():  # about missing GPU kernels
    warnings.simplefilter("ignore")
    from eole.config.models import TransformerModelConfig
    from eole.config.training import TrainingConfig
    from eole.models.model import get_model_class


def vocabularies(task: Task) -> dict[str, Any]:
    """Return vocabularies with the special tokens of the task and arbitrary names for the other ids."""
    words = {f"token{index}": index for index in range(task.vocab_size)}
    words = {"<pad>" if index == task.pad_id else name: index for name, index in words.items()}
    return {"src": words, "tgt": words, "specials": {"pad_token": "<pad>"}}


def model_config(task: Task) -> TransformerModelConfig:
    return TransformerModelConfig(
        layers=task.num_layers,
        hidden_size=task.model_dim,
        transformer_ff=task.inner_dim,
        heads=task.num_heads,
        add_qkvbias=True,
        add_final_linear_bias=True,
        add_ffnbias=True,
        generator_bias=False,
        share_embeddings=True,
        share_decoder_embeddings=True,
        embeddings={"word_vec_size": task.model_dim, "position_encoding": True},
    )


class EoleLoss(LogitsLoss):
    """EOLE's model with torch's cross-entropy, which EOLE's LossCompute also uses."""

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        pad_id = self.task.pad_id
        # EOLE expects the whole target and drops the last token.
        whole = torch.cat((tgt_in, tgt_in.new_full((len(tgt_in), 1), pad_id)), 1)
        hidden = self.model(src, whole, (src != pad_id).sum(1)).dec_out
        scores: Tensor = self.model.generator(hidden)
        return scores


class Eole(TrainingOnlyPeer):
    name = "EOLE"
    notes = "pre-norm (its decoder supports no other); dropout inside the feed-forward network set to 0"

    @staticmethod
    def version() -> str:
        return metadata.version("eole")

    def build(self) -> LossModule:
        task = self.task
        config, words = model_config(task), vocabularies(task)
        settings = TrainingConfig(
            dropout=[task.dropout],
            attention_dropout=[0.0],
            param_init_method="xavier_uniform",
            compute_dtype="fp32",
        )
        model = get_model_class(config).for_training(config, words, settings, device_id=None)
        for module in model.modules():
            if hasattr(module, "dropout_1"):  # of an MLP, after the activation
                module.dropout_1.p = 0.0
        return EoleLoss(model, task)


if __name__ == "__main__":
    serve(Eole)
