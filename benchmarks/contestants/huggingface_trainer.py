"""Hugging Face `Seq2SeqTrainer`, with its own sampler, collator and batches, on the same sentences and Marian model.

Its batches have a fixed number of sentences, here the mean of the batches of the data file. Its sampler groups
sentences by source length only: in ten batches of Multi30k at preset tiny, 14 % of the source and 29 % of the target
are padding. The sampler sorts within a quarter of the data, at most 50 batches; with the complete training set, 7 % of
the source and 39 % of the target would be padding, because one long target extends its batch.
"""

import tempfile
from typing import Any, cast

from tokenizers import Tokenizer, models
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Seq2SeqTrainer, Seq2SeqTrainingArguments

from benchmarks.contestants.huggingface import HuggingFace
from benchmarks.harness.protocol import Pairs, Setting, Start, Task, serve


def tokenizer_of(task: Task) -> PreTrainedTokenizerFast:
    """Return a tokenizer with arbitrary tokens, of which only the padding id is used."""
    words = {"<pad>" if index == task.pad_id else f"token{index}": index for index in range(task.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=f"token{task.unk_id}"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")  # type: ignore[no-untyped-call]


class HuggingFaceTrainer(HuggingFace):
    name = "Hugging Face's own trainer"
    notes = (
        "Seq2SeqTrainer with fused AdamW, label smoother and logging; one pass over the same sentences, the same "
        "number in each batch, grouped by source length; no checkpoint; Marian model"
    )

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.folder = tempfile.TemporaryDirectory(prefix="huggingface-")
        self.tokenizer = tokenizer_of(self.task)

    @staticmethod
    def train_settings(cores: int) -> list[Setting]:
        return [Setting(threads=cores)]

    @staticmethod
    def decode_settings(cores: int) -> list[Setting]:
        return []

    def arguments(self, sentences: int) -> Seq2SeqTrainingArguments:
        task = self.task
        return Seq2SeqTrainingArguments(
            output_dir=self.folder.name, num_train_epochs=1, per_device_train_batch_size=sentences,
            train_sampling_strategy="group_by_length", optim="adamw_torch_fused", weight_decay=0.0,
            adam_beta1=task.beta1, adam_beta2=task.beta2, adam_epsilon=task.epsilon,
            learning_rate=task.learning_rate, lr_scheduler_type="inverse_sqrt", warmup_steps=task.warmup,
            max_grad_norm=task.clip_norm, label_smoothing_factor=task.label_smoothing,
            use_cpu=True, seed=task.seed, report_to="none", save_strategy="no", eval_strategy="no",
        )  # fmt: skip

    def prepare(self, batches: list[Pairs]) -> Seq2SeqTrainer:
        """Return a trainer for one pass over the tokenized sentences."""
        model = cast(Any, self.module.model)
        sentences = [
            {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
            for pairs in batches
            for source, target in zip(pairs.source, pairs.target, strict=True)
        ]
        return Seq2SeqTrainer(
            model=model,
            args=self.arguments(-(-len(sentences) // len(batches))),
            train_dataset=cast(Any, sentences),
            data_collator=DataCollatorForSeq2Seq(self.tokenizer, model=model),
            processing_class=self.tokenizer,
        )

    def train(self, prepared: Seq2SeqTrainer) -> None:
        prepared.train()


if __name__ == "__main__":
    serve(HuggingFaceTrainer)
