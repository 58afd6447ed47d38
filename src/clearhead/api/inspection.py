"""Looking inside a model: traces, parts switched off, word alignments from attention."""

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
    """What happens inside."""

    def inspection_settings(self, **overrides: Any) -> DecodingConfig:
        """The settings with which a model is looked at: it searches, also where its own verb draws."""
        if get_task(self.config.task).verb != "generate":
            return self.decoding(**overrides)
        return self.decoding("translate", method="search", **overrides)

    def attention(self, source: str, target: str) -> WordAttention:
        """Encoder-decoder attention between words while the model is made to write `target`."""
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
        """Everything that happens inside while the model reads a text and writes `target`, or the best it finds.

        Of what search found, `hypothesis` is looked at; `tokens` are ids to be written exactly so, such as those of a
        node of the beam tree (`trace.path(node)`); `arithmetic` keeps queries, keys and values too.
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
        """As `trace`, of a PNG: the places that attend and are attended to are its patches."""
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
        """This model with parts of its network switched off; all its verbs work, and the weights are the same.

        A part is a head such as `cross.1.0` (kind, layer, head, counted from 0) or a whole sub-layer such as
        `cross.1` or `decoder_feed_forward.0`. It gives nothing, or by="mean" always its mean over these texts.
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
        """The word alignment of each pair by a head's attention; an error names the line in `path`."""
        self.require_task("translate")
        return word_alignment.align(self, pairs, head or word_alignment.default_head(self), path)

    def choose_head(self, gold: StrPath) -> word_alignment.ChosenHead:
        """The head that aligns best, measured against the gold alignments of a JSONL file."""
        self.require_task("translate")
        return word_alignment.choose_head(self, [*read_aligned(gold)], gold)
