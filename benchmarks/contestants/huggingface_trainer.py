"""Hugging Face `Seq2SeqTrainer`, with its own sampler, collator and batches, on the same sentences and the same Marian.

It has no batches of so many tokens: a batch is a number of sentences, here the mean of the given batches. Its sampler
puts sources of like length together, whatever the lengths of their targets: of ten batches of Multi30k at preset tiny
14 % of the source and 29 % of the target are padding. It sorts within a quarter of what it has, and 50 batches at most;
of the whole training set 7 % and 39 % would be padding, since one long target makes a whole batch long.
"""

import tempfile
from typing import Any, cast

from tokenizers import Tokenizer, models
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Seq2SeqTrainer, Seq2SeqTrainingArguments

from benchmarks.contestants.huggingface import HuggingFace
from benchmarks.protocol import Pairs, Setting, Start, Task, serve


def tokenizer_of(task: Task) -> PreTrainedTokenizerFast:
    """Made-up pieces: only the id of the padding is asked for."""
    words = {"<pad>" if index == task.pad_id else f"piece{index}": index for index in range(task.vocab_size)}
    pieces = Tokenizer(models.WordLevel(words, unk_token=f"piece{task.unk_id}"))
    return PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="<pad>")  # type: ignore[no-untyped-call]


class HuggingFaceTrainer(HuggingFace):
    name = "Hugging Face's own trainer"
    notes = (
        "Seq2SeqTrainer with its fused AdamW, label smoother and bookkeeping; one pass over the same sentences, the "
        "same number in each batch, grouped by the length of the source; no checkpoint; the model is Marian"
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
        """The sentences as they are after tokenization, and a trainer for one pass over them."""
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
