"""Registry of the tasks."""

from clearhead.data.readers.tables import TABLE_FIELDS
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.errors import ConfigError
from clearhead.tasks.task import Task

NUM_SENTINELS = 32

_TASKS = (
    Task(
        name="translate",
        package="translation",
        verb="translate",
        record_name="pairs",
        data_fields=(
            *TABLE_FIELDS, "max_chars", "max_tokens", "max_length_ratio", "deduplicate", "file_weights",
            "sampling_temperature", "source_tags", "validation_tags", "bpe_dropout", "languages", "split",
        ),
        base={"task": "translate", "model": {"head": "generation"}},
    ),
    Task(
        name="classify",
        package="classification",
        verb="classify",
        record_name="labelled texts",
        data_fields=(*TABLE_FIELDS, "max_chars", "max_tokens"),
        base={
            "task": "classify",
            "model": {"family": "encoder", "head": "classification"},
            "training": {"label_smoothing": 0.0},
        },
    ),
    Task(
        name="tag",
        package="tagging",
        verb="tag",
        record_name="tagged sentences",
        data_fields=("max_chars", "max_tokens"),
        base={
            "task": "tag",
            "model": {"family": "encoder", "head": "token_classification"},
            "training": {"label_smoothing": 0.0},
        },
    ),
    Task(
        name="lm",
        package="language_modeling",
        verb="generate",
        record_name="documents",
        data_fields=("document_unit", "max_tokens", "attend_across_documents"),
        base={
            "task": "lm",
            "model": {"family": "decoder"},
            "tokenizer": {"normalization": "none"},  # line breaks are generated too
            "data": {"document_unit": "paragraph"},
            "training": {"label_smoothing": 0.0},
            "decoding": {"method": "sample"},
        },
    ),
    Task(
        name="mlm",
        package="masked_lm",
        verb="fill",
        record_name="documents",
        data_fields=("document_unit", "max_tokens", "mask_probability", "whole_word_masking"),
        # Longer positions than `data.max_tokens` would never be trained, so the network has only this number.
        base={
            "task": "mlm",
            "model": {
                "family": "encoder", "head": "masked_lm", "positions": "learned", "max_positions": 256,
                "activation": "gelu",
            },
            "tokenizer": {"special_tokens": [MASK_TOKEN]},
            "data": {"document_unit": "line", "max_tokens": 256},
            "training": {"label_smoothing": 0.0},
        },
    ),
    Task(
        name="denoise",
        package="denoising",
        verb="translate",
        record_name="documents",
        data_fields=("document_unit", "max_tokens", "mask_probability"),
        base={
            "task": "denoise",
            "model": {
                "family": "transformer", "head": "generation", "norm": "rms", "bias": False, "positions": "relative",
            },
            "tokenizer": {"special_tokens": tuple(f"<x{number}>" for number in range(NUM_SENTINELS))},
        },
    ),
    Task(
        name="image",
        package="image_classification",
        verb="classify",
        record_name="images",
        data_fields=("random_shift",),
        base={
            "task": "image",
            "model": {"family": "vit", "head": "classification", "positions": "learned", "pooling": "first"},
            "data": {"validation_share": 0.1},
            "training": {"label_smoothing": 0.0},
        },
    ),
    Task(
        name="caption",
        package="captioning",
        verb="translate",
        record_name="captions",
        data_fields=(*TABLE_FIELDS, "max_chars", "max_tokens", "random_shift"),
        base={
            "task": "caption",
            "model": {"family": "transformer", "input": "image"},
            "data": {"validation_share": 0.1},
        },
    ),
    Task(
        name="embed",
        package="sentence_embedding",
        verb="embed",
        record_name="texts",
        data_fields=(),
        base={"task": "embed", "model": {"family": "encoder", "head": "embedding"}},
        untrainable=(
            "embeddings are not trained; train --task mlm on text, or --task classify --from this model"
        ),
    ),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def get_task(name: str) -> Task:
    """Return the task of that name."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}; expected one of {', '.join(TASKS)}")
    return TASKS[name]
