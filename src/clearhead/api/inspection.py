"""Methods of a model that inspect it: traces, ablation and word alignments."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from clearhead.api.base import ModelBase, StrPath, check_text
from clearhead.config import DecodingConfig
from clearhead.data.readers.pairs import Pair, read_aligned
from clearhead.errors import InspectionError
from clearhead.inspection.analyses import word_alignment
from clearhead.inspection.analyses.word_attention import WordAttention, word_attention
from clearhead.inspection.trace.head_ref import HeadRef

if TYPE_CHECKING:
    from clearhead.inspection.analyses.ablation import AblationMethod
    from clearhead.inspection.trace.trace_types import Trace


class TraceOptions(TypedDict, total=False):
    """Keyword arguments of `trace` and `trace_image`."""

    tokens: Sequence[int] | None
    """Token ids of a forced output, such as `trace.path(node)` of a node of the beam tree; no end token is added."""
    hypothesis: int
    """Index of the search hypothesis to trace; default: 0, the best."""
    arithmetic: bool
    """Whether to include queries, keys and values; default: False."""
    settings: DecodingConfig | None
    """Decoding settings; default: the model's."""


class InspectionMethods(ModelBase):
    """Methods that inspect a model."""

    def inspection_settings(self, **overrides: Any) -> DecodingConfig:
        """Return the decoding settings for traces; language models use search instead of sampling."""
        if self.task.verb != "generate":
            return self.decoding(**overrides)
        return self.decoding("translate", method="search", **overrides)

    def attention(self, source: str, target: str) -> WordAttention:
        """Return the cross-attention between words under teacher forcing of `target`."""
        self.require_task("translate")
        return word_attention(self.trace(source, target))

    def trace(
        self, text: str, target: str | None = None, beam_size: int | None = None, **options: Unpack[TraceOptions]
    ) -> "Trace":
        """Run the model on a text and return its activations, attention weights and search.

        The output is `target` (teacher forcing), or found by search. Further options are in `TraceOptions`.
        """
        check_text(text)
        self._require_input(images=False)
        return self._trace(text, target, beam_size, **options)

    def trace_image(
        self, path: StrPath, target: str | None = None, beam_size: int | None = None, **options: Unpack[TraceOptions]
    ) -> "Trace":
        """Run the model on a PNG image and return the trace; the positions of the source are the patches."""
        self._require_input(images=True)
        return self._trace(path, target, beam_size, **options)

    def _trace(
        self,
        source: StrPath,
        target: str | None,
        beam_size: int | None,
        *,
        settings: DecodingConfig | None = None,
        **options: Any,
    ) -> "Trace":
        from clearhead.inspection.trace.run_trace import run_trace
        from clearhead.inspection.trace.trace_input import read_input

        trace_input = read_input(self, source)
        resolved = self._resolve_settings(settings, self.inspection_settings, beam_size=beam_size)
        return run_trace(self, trace_input, target, resolved, **options)

    def with_ablated(
        self, head_refs: Iterable[HeadRef | str], method: "AblationMethod" = "zero", texts: Sequence[str] = ()
    ) -> Self:
        """Return this model with ablated heads or sub-layers; it has all methods and shares the weights.

        A head is written as kind, layer and head, counted from 0, such as `cross.1.0`; a whole sub-layer as `cross.1`
        or `decoder_feed_forward.0`. Ablation replaces its output by zero, or with method="mean" by the mean over
        `texts`.
        """
        from clearhead.inspection.analyses.ablation import ablate, mean_outputs, parse_head_refs

        if method not in ("zero", "mean") or (texts and method == "zero"):
            raise InspectionError(
                f'expected method="zero", or method="mean" with texts, got method={method!r} and {len(texts)} texts'
            )
        parsed = parse_head_refs(self.network, head_refs)
        means = mean_outputs(self, parsed, texts, self.config.decoding) if method == "mean" else None
        return self.with_network(ablate(self.network, parsed, means))

    def align(
        self, pairs: Sequence[Pair], head_ref: HeadRef | None = None, path: StrPath = "pairs"
    ) -> Iterator[word_alignment.WordAlignment]:
        """Yield the word alignment of each pair, derived from the attention of a head.

        An error names the line of the pair in the file `path`.
        """
        self.require_task("translate")
        return word_alignment.align(self, pairs, head_ref or word_alignment.default_head(self), path)

    def choose_head(self, gold: StrPath) -> word_alignment.ChosenHead:
        """Return the head with the lowest alignment error rate against the gold alignments of a JSONL file."""
        self.require_task("translate")
        return word_alignment.choose_head(self, [*read_aligned(gold)], gold)
