"""The two kinds of CTranslate2 models behind one face: one that reads a source, one that goes on from a prompt.

Knows pieces and CTranslate2's calls; what they are made to mean stands in `ctranslate2`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from clearhead.data.extras import require_package

Pieces = list[str]
ComputeType = Literal["float32", "int8"]


@dataclass(frozen=True)
class Vocabulary:
    """The pieces, which CTranslate2 reads and writes, in the order of their ids."""

    pieces: Sequence[str]
    source: Sequence[str] = ()
    """Those of sources, where they are others."""
    unknown: int = 1
    """The id of <unk>, or of what stands for it."""

    @property
    def read(self) -> Sequence[str]:
        """The pieces of what is read."""
        return self.source or self.pieces


def library() -> Any:
    """Return the module `ctranslate2`."""
    return require_package("ctranslate2", "CTranslate2")


class Outputs(NamedTuple):
    """What was found for one input, best first: the pieces, with the end where it was written, and their scores."""

    pieces: list[Pieces]
    scores: list[float]


class Loaded(Protocol):
    """A model that CTranslate2 has loaded."""

    def search(self, inputs: list[Pieces], limit: int, batch_tokens: int, beam: int, **options: Any) -> list[Any]:
        """A future for each input."""

    def outputs(self, future: Any) -> Outputs:
        """What became of it."""

    def score(self, inputs: list[Pieces], outputs: list[Pieces], end: str, batch_tokens: int) -> list[Sequence[float]]:
        """The log-probability of each piece of the outputs behind their inputs, and of the end behind them."""


class SourceModel:
    """A `ctranslate2.Translator`."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._model = library().Translator(str(folder), device="cpu", **options)

    def search(self, inputs: list[Pieces], limit: int, batch_tokens: int, beam: int, **options: Any) -> list[Any]:
        """Inputs would be cut at 1,024 pieces silently: that is switched off."""
        futures: list[Any] = self._model.translate_batch(
            inputs,
            asynchronous=True,
            max_batch_size=max(1, batch_tokens // beam),
            batch_type="tokens",
            beam_size=beam,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            **options,
        )
        return futures

    def outputs(self, future: Any) -> Outputs:
        """What became of it."""
        found = future.result()
        return Outputs(found.hypotheses, found.scores)

    def score(self, inputs: list[Pieces], outputs: list[Pieces], end: str, batch_tokens: int) -> list[Sequence[float]]:
        """CTranslate2 puts the end behind them by itself."""
        results = self._model.score_batch(
            inputs, outputs, max_batch_size=batch_tokens, batch_type="tokens", max_input_length=0
        )
        return [result.log_probs for result in results]


class PromptModel:
    """A `ctranslate2.Generator`; inputs of a call are of one length, so that all of a prompt is read at once."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self._model = library().Generator(str(folder), device="cpu", **options)

    def search(self, inputs: list[Pieces], limit: int, batch_tokens: int, beam: int, **options: Any) -> list[Any]:
        """Each row keeps its prompt and what follows it."""
        futures: list[Any] = self._model.generate_batch(
            inputs,
            asynchronous=True,
            max_batch_size=max(1, batch_tokens // (beam * (len(inputs[0]) + limit))),
            beam_size=beam,
            include_prompt_in_result=False,
            max_length=limit,
            min_length=0,
            **options,
        )
        return futures

    def outputs(self, future: Any) -> Outputs:
        """What became of it."""
        found = future.result()
        return Outputs(found.sequences, found.scores)

    def score(self, inputs: list[Pieces], outputs: list[Pieces], end: str, batch_tokens: int) -> list[Sequence[float]]:
        """Of the first piece of all there is none."""
        whole = [[*prompt, *pieces, end] for prompt, pieces in zip(inputs, outputs, strict=True)]
        results = self._model.score_batch(whole, max_batch_size=batch_tokens, batch_type="tokens", max_input_length=0)
        return [result.log_probs[len(prompt) - 1 :] for prompt, result in zip(inputs, results, strict=True)]
