"""Sentence embeddings: the mean of an encoder's states over the pieces of a text, its frame included.

N texts, S length, D model width

Embeddings are not trained by themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import TaskError
from clearhead.tasks.long_texts import LongTexts, split_into_rows
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class EmbeddedText:
    """The embedding of a text, and the parts of a text that was too long with their lengths in tokens."""

    vector_D: NDArray[np.float32] | None
    """None for an empty text and for one that was skipped."""
    parts: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the embedding, null if there is none; `parts` only for a text that was split."""
        record: dict[str, Any] = {"embedding": None if self.vector_D is None else self.vector_D.tolist()}
        parts = [{"text": text, "tokens": tokens} for text, tokens in self.parts]
        return {**record, "parts": parts} if parts else record


def embed(
    model: LoadedModel,
    texts: Sequence[str],
    first_line: int = 1,
    unit: bool = False,
    long_texts: LongTexts | None = None,
) -> list[EmbeddedText]:
    """Return the embedding of each text, with `unit` scaled to length 1.

    That of a long text is the mean over its parts, weighted by their lengths in tokens. Errors name a text by its line,
    counted from `first_line`.
    """
    split = split_into_rows(model, texts, long_texts or LongTexts(), first_line)
    vectors_PD = model.encoder_engine.mean_states(split.rows)
    results = []
    for parts, span in zip(split.parts, split.spans, strict=True):
        if not parts:
            results.append(EmbeddedText(None))
            continue
        lengths_P = np.array([len(row) for row in split.rows[span]], dtype=np.float32)
        vector_D = vectors_PD[span][0] if len(parts) == 1 else lengths_P @ vectors_PD[span] / lengths_P.sum()
        if unit:
            vector_D = vector_D / max(float(np.linalg.norm(vector_D)), 1e-12)
        sizes = [len(row) - split.num_special_tokens for row in split.rows[span]]
        results.append(EmbeddedText(vector_D, tuple(zip(parts, sizes, strict=True)) if len(parts) > 1 else ()))
    return results


def evaluate(*_: Any) -> NoReturn:
    """Raise TaskError: there is no reference to compare an embedding with."""
    raise TaskError("embeddings have no score of their own; train --task classify --from this model and evaluate that")


def read(*_: Any) -> NoReturn:
    """Raise TaskError: nothing is learned from texts alone here."""
    raise TaskError("embeddings are not trained; train --task mlm on text, or --task classify --from this model")


make = read
