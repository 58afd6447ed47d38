"""Inspection of a model: traces, ablation and word alignments."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from clearhead.api.base import ModelBase, StrPath, check_text
from clearhead.config import DecodingConfig
from clearhead.data.readers.pairs import Pair, read_aligned
from clearhead.errors import InspectionError
from clearhead.inspection.analyses import word_alignment
from clearhead.inspection.analyses.word_attention import WordAttention, word_attention
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.tasks.registry import get_task

if TYPE_CHECKING:
    from clearhead.inspection.analyses.ablation import By
    from clearhead.inspection.trace.trace_types import Trace


class InspectionMethods(ModelBase):
    """Methods that inspect a model."""

    def inspection_settings(self, **overrides: Any) -> DecodingConfig:
        """Return the decoding settings of traces: language models search instead of sampling."""
        if get_task(self.config.task).verb != "generate":
            return self.decoding(**overrides)
        return self.decoding("translate", method="search", **overrides)

    def attention(self, source: str, target: str) -> WordAttention:
        """Return the cross-attention between words under teacher forcing of `target`."""
        self.require_task("translate")
        return word_attention(self.trace(source, target))

    def trace(
        self,
        text: str,
        target: str | None = None,
        beam_size: int | None = None,
        *,
        tokens: Sequence[int] | None = None,
        hypothesis: int = 0,
        arithmetic: bool = False,
        settings: DecodingConfig | None = None,
    ) -> "Trace":
        """Return the activations, attention and search of one run over a text.

        The output is `target` or `tokens` (ids, such as `trace.path(node)` of the beam tree) under teacher forcing, or
        number `hypothesis` of the search. With `arithmetic` queries, keys and values are recorded too.
        """
        from clearhead.inspection.trace import run_trace

        check_text(text)
        self._require_input(images=False)
        given, settings = (
            run_trace.text_input(self, text),
            self._resolve_settings(settings, self.inspection_settings, beam_size=beam_size),
        )
        return run_trace.trace(
            self, given, target, settings, tokens=tokens, hypothesis=hypothesis, arithmetic=arithmetic
        )

    def trace_image(
        self,
        path: StrPath,
        target: str | None = None,
        beam_size: int | None = None,
        *,
        tokens: Sequence[int] | None = None,
        hypothesis: int = 0,
        arithmetic: bool = False,
        settings: DecodingConfig | None = None,
    ) -> "Trace":
        """Return the trace of a run over a PNG image; the positions of the source are its patches."""
        from clearhead.inspection.trace import run_trace

        self._require_input(images=True)
        given, settings = (
            run_trace.image_input(self, Path(path)),
            self._resolve_settings(settings, self.inspection_settings, beam_size=beam_size),
        )
        return run_trace.trace(
            self, given, target, settings, tokens=tokens, hypothesis=hypothesis, arithmetic=arithmetic
        )

    def with_ablated(self, parts: Iterable[HeadRef | str], by: "By" = "zero", over: Sequence[str] = ()) -> Self:
        """Return this model with ablated heads or sub-layers; all its methods work, and it shares the weights.

        A head is written `cross.1.0` (kind, layer, head, counted from 0), a whole sub-layer `cross.1` or
        `decoder_feed_forward.0`. Its output is replaced by zero, or with by="mean" by its mean over the texts `over`.
        """
        from clearhead.inspection.analyses.ablation import ablate, heads_and_sublayers, mean_outputs

        if by not in ("zero", "mean") or (over and by == "zero"):
            raise InspectionError(f'expected by="zero", or by="mean" with texts, got by={by!r} and {len(over)} texts')
        chosen = heads_and_sublayers(self.network, parts)
        means = mean_outputs(self, chosen, over, self.config.decoding) if by == "mean" else None
        return self.with_network(ablate(self.network, chosen, means))

    def align(
        self, pairs: Sequence[Pair], head: HeadRef | None = None, path: StrPath = "pairs"
    ) -> Iterator[word_alignment.WordAlignment]:
        """Yield the word alignment of each pair by the attention of a head; an error names the line in `path`."""
        self.require_task("translate")
        return word_alignment.align(self, pairs, head or word_alignment.default_head(self), path)

    def choose_head(self, gold: StrPath) -> word_alignment.ChosenHead:
        """Return the head with the lowest alignment error rate against the gold alignments of a JSONL file."""
        self.require_task("translate")
        return word_alignment.choose_head(self, [*read_aligned(gold)], gold)
