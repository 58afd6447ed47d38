"""Sentence embeddings: the mean of an encoder's states over the pieces of a text, its frame included.

N texts, S length, D model width
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from clearhead.config import Config, DecodingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError, TaskError
from clearhead.model.reading import pool
from clearhead.tasks.examples import check_length, framed, in_batches, most_pieces, pad
from clearhead.tasks.task import Files, Made, Ready, Records, Report, Tell
from clearhead.tasks.texts import FramedText

BATCH_TOKENS = 4096


@torch.inference_mode()
def embed(model: Ready, texts: Sequence[str], first_line: int = 1, unit: bool = False) -> NDArray[np.float32]:
    """vectors_ND, with `unit` of length 1. Errors name a text by its line, counted from `first_line`."""
    encoded = model.tokenizer.encode_batch(texts)
    for line, ids in enumerate(encoded, first_line):
        if not ids:
            raise DataError(f"line {line} is empty; there is nothing to embed")
        check_length(line, len(ids), most_pieces(model.config) - 2)
    rows = [framed(model.tokenizer, ids) for ids in encoded]
    vectors_ND = np.zeros((len(rows), model.config.model.model_dim), dtype=np.float32)
    for batch in in_batches([len(row) for row in rows], BATCH_TOKENS):
        ids_BS = torch.from_numpy(pad([rows[index] for index in batch], model.tokenizer.pad_id))
        states_BSD = model.network.reader(ids_BS).states_BSD
        mean_BD = pool(states_BSD, ids_BS != model.tokenizer.pad_id, "mean")
        vectors_ND[batch] = (F.normalize(mean_BD) if unit else mean_BD).numpy()
    return vectors_ND


class Embedding(FramedText):
    """What a model that only reads is for. It comes from `clearhead import`; it is no task to train."""

    name = "embed"
    verb = "embed"
    noun = "texts"
    data_fields: tuple[str, ...] = ()
    base: Mapping[str, Any] = {"task": "embed", "model": {"family": "encoder", "head": "vector"}}

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Any]:
        """Refused: nothing is learned from texts alone here."""
        raise TaskError("embeddings are not trained; train --task mlm on text, or --task classify --from this model")

    def make(self, config: Config, records: Records[Any], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Never reached: reading refuses."""
        raise TaskError("embeddings are not trained")

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> Report:
        """Refused: there is no truth to compare a vector with."""
        raise TaskError(
            "embeddings have no score of their own; train --task classify --from this model and evaluate that"
        )
