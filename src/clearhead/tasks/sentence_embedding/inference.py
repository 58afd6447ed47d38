"""Sentence embeddings: the mean of an encoder's output over the tokens of a text, special tokens included.

P parts of texts, D model width
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import TaskError
from clearhead.json_format import OMIT_IF_EMPTY, JsonResult
from clearhead.tasks.long_texts import LongTexts, split_into_rows
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import EncoderCodec

CODEC = EncoderCodec()


@dataclass(frozen=True)
class EmbeddedPart(JsonResult):
    """One part of a text, and its number of tokens without special tokens."""

    text: str
    tokens: int


@dataclass(frozen=True)
class EmbeddedText(JsonResult):
    """The embedding of a text."""

    embedding: NDArray[np.float32] | None
    """None for an empty or skipped text."""
    parts: tuple[EmbeddedPart, ...] = field(default=(), metadata=OMIT_IF_EMPTY)
    """The parts of a text that was too long for the model."""


def embed(
    model: LoadedModel,
    texts: Sequence[str],
    first_line: int = 1,
    unit: bool = False,
    long_texts: LongTexts | None = None,
) -> list[EmbeddedText]:
    """Return the embedding of each text; with `unit` it is scaled to length 1.

    The embedding of a long text is the mean over its parts, weighted by their lengths in tokens. Errors name a text by
    its line, counted from `first_line`.
    """
    split = split_into_rows(model, texts, long_texts or LongTexts(), first_line)
    vectors_PD = model.encoder_engine.mean_states(split.rows)
    results = []
    for parts, span in zip(split.parts, split.spans, strict=True):
        if not parts:
            results.append(EmbeddedText(embedding=None))
            continue
        lengths = [len(row) for row in split.rows[span]]
        lengths_P = np.array(lengths, dtype=np.float32)
        vector_D = vectors_PD[span][0] if len(parts) == 1 else lengths_P @ vectors_PD[span] / lengths_P.sum()
        if unit:
            vector_D = vector_D / max(float(np.linalg.norm(vector_D)), 1e-12)
        embedded = [
            EmbeddedPart(part, length - split.num_special_tokens) for part, length in zip(parts, lengths, strict=True)
        ]
        results.append(EmbeddedText(vector_D, tuple(embedded) if len(parts) > 1 else ()))
    return results


def evaluate(*_: Any) -> NoReturn:
    """Raise TaskError, because there are no reference embeddings."""
    raise TaskError("embeddings have no score; train --task classify --from this model and evaluate that")
