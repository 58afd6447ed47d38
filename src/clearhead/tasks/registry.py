"""Every task by its name."""

from clearhead.data.readers.tables import TABLE_FIELDS
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.errors import ConfigError
from clearhead.tasks.task import Task
from clearhead.tasks.text_codec import EncoderCodec, MaskedCodec, PromptCodec, SentinelCodec

NUM_SENTINELS = 32

_TASKS = (
    Task(
        name="translate",
        verb="translate",
        record_name="pairs",
        data_fields=(
            *TABLE_FIELDS, "max_chars", "max_tokens", "max_length_ratio", "deduplicate", "file_weights",
            "sampling_temperature", "source_tags", "validation_tags", "bpe_dropout", "languages", "split",
        ),
        base={"task": "translate", "model": {"head": "generation"}},
        training="translation.training",
        evaluation="translation.evaluation",
    ),
    Task(
        name="classify",
        verb="classify",
        record_name="labelled texts",
        data_fields=(*TABLE_FIELDS, "max_chars", "max_tokens"),
        base={
            "task": "classify",
            "model": {"family": "encoder", "head": "classification"},
            "training": {"label_smoothing": 0.0},
        },
        training="classification.training",
        evaluation="classification.inference",
        codec=EncoderCodec(),
    ),
    Task(
        name="tag",
        verb="tag",
        record_name="tagged sentences",
        data_fields=("max_chars", "max_tokens"),
        base={
            "task": "tag",
            "model": {"family": "encoder", "head": "token_classification"},
            "training": {"label_smoothing": 0.0},
        },
        training="tagging.training",
        evaluation="tagging.inference",
        codec=EncoderCodec(),
    ),
    Task(
        name="lm",
        verb="generate",
        record_name="documents",
        data_fields=("document_unit", "max_tokens", "attend_across_documents"),
        base={
            "task": "lm",
            "model": {"family": "decoder"},
            "tokenizer": {"normalization": "none"},  # line breaks are text that is to be generated
            "data": {"document_unit": "paragraph"},
            "training": {"label_smoothing": 0.0},
            "decoding": {"method": "sample"},
        },
        training="language_modeling.training",
        evaluation="language_modeling.evaluation",
        codec=PromptCodec(),
    ),
    Task(
        name="mlm",
        verb="fill",
        record_name="documents",
        data_fields=("document_unit", "max_tokens", "mask_probability", "whole_word_masking"),
        # Positions are learned only as far as rows reach: a longer text would stand on positions never trained.
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
        training="masked_lm.training",
        evaluation="masked_lm.evaluation",
        codec=MaskedCodec(),
    ),
    Task(
        name="denoise",
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
        training="denoising.training",
        evaluation="denoising.evaluation",
        codec=SentinelCodec(),
    ),
    Task(
        name="image",
        verb="classify",
        record_name="pictures",
        data_fields=("random_shift",),
        base={
            "task": "image",
            "model": {"family": "vit", "head": "classification", "positions": "learned", "pooling": "first"},
            "data": {"validation_share": 0.1},
            "training": {"label_smoothing": 0.0},
        },
        training="image_classification.training",
        evaluation="image_classification.inference",
        codec=EncoderCodec(),
    ),
    Task(
        name="caption",
        verb="translate",
        record_name="captions",
        data_fields=(*TABLE_FIELDS, "max_chars", "max_tokens", "random_shift"),
        base={
            "task": "caption",
            "model": {"family": "transformer", "input": "image"},
            "data": {"validation_share": 0.1},
        },
        training="captioning.training",
        evaluation="captioning.training",
    ),
    Task(
        name="embed",
        verb="embed",
        record_name="texts",
        data_fields=(),
        base={"task": "embed", "model": {"family": "encoder", "head": "embedding"}},
        training="sentence_embedding",
        evaluation="sentence_embedding",
        codec=EncoderCodec(),
    ),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def get_task(name: str) -> Task:
    """Return the task of that name."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}; there are {', '.join(TASKS)}.")
    return TASKS[name]
