"""Translations of texts, captions of images, and scores of given translations."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, overload

from clearhead.api.base import ModelBase, StrPath, check_text, check_texts, paths_of
from clearhead.config import DecodingConfig
from clearhead.data.readers.pairs import Pair
from clearhead.data.segmentation import gap_between
from clearhead.data.shortlist import CANDIDATES_PER_TOKEN, NUM_FREQUENT, Shortlist
from clearhead.engines.engine import Engine
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.captioning.inference import generate_captions
from clearhead.tasks.generated_text import Translation, join_translations
from clearhead.tasks.image_classification.inference import read_images
from clearhead.tasks.long_texts import LongTextPolicy, LongTexts, segment_texts
from clearhead.tasks.scoring import ScoredOutput, score_pairs
from clearhead.tasks.translation import inference
from clearhead.tasks.translation.inference import (
    learn_shortlist,
    score_translations,
    to_translations,
    tokenizer_fingerprint,
    translation_segmenter,
)

if TYPE_CHECKING:
    from clearhead.evaluation.metrics import TranslationReport


class TranslationMethods(ModelBase):
    """Methods of models that generate text from a text or an image."""

    @overload
    def translate(
        self,
        text: str,
        *,
        beam_size: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        split: bool = True,
        long_texts: LongTextPolicy | LongTexts = "split",
        **decoding: Any,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        text: list[str] | tuple[str, ...],
        *,
        beam_size: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        split: bool = True,
        long_texts: LongTextPolicy | LongTexts = "split",
        **decoding: Any,
    ) -> list[Translation]: ...
    def translate(self, text: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Return the translation of a text, or of each text of a list. Options are those of `translate_many`."""
        if isinstance(text, str):
            return self.translate_many([text], **options)[0]
        return self.translate_many(text, **options)

    def translate_many(
        self,
        texts: Sequence[str],
        *,
        beam_size: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        shortlist: Shortlist | None = None,
        split: bool = True,
        long_texts: LongTextPolicy | LongTexts = "split",
        **decoding: Any,
    ) -> list[Translation]:
        """Return the best translation of each text. The other texts do not change it.

        Decoding settings are given as a whole or by name, such as include=["Hund"] or prefix="Der". `split` and
        `long_texts` are those of `translate_n_best`.
        """
        chosen = self._resolve_settings(settings, self.decoding, beam_size=beam_size, **decoding)
        found = self.translate_n_best(
            texts, 1, chosen, engine=engine, shortlist=shortlist, split=split, long_texts=long_texts
        )
        return [best[0] for best in found]

    def translate_n_best(
        self,
        texts: Sequence[str],
        n_best: int,
        settings: DecodingConfig,
        first_line: int = 1,
        engine: Engine | str = "",
        shortlist: Shortlist | None = None,
        *,
        split: bool = True,
        long_texts: LongTextPolicy | LongTexts = "split",
        cancellation: Cancellation | None = None,
    ) -> list[list[Translation]]:
        """Return the `n_best` translations of each text, best first; one empty translation for an empty text.

        With `split`, a model trained on single sentences translates each sentence of a text and joins the
        translations with the original whitespace. A text with more tokens than the model accepts is split further,
        skipped (an empty translation) or refused, as `long_texts` says. Neither is possible with several hypotheses or
        with constraints: such a text is then not split into sentences, and refused if it is too long.

        Samples are in the order of drawing. An error names the text by its line, counted from `first_line`. `engine`
        is a name or the result of `engine()`; `shortlist` is the result of `load_shortlist()`. Another thread may set
        `cancellation`: the search then ends within one step and RequestCancelledError is raised.
        """
        texts = check_texts(texts)
        self.require_task("translate")
        self.check_n_best(n_best, settings)
        searching = self.engine(engine) if isinstance(engine, str) else engine
        is_plain = can_be_split(n_best, settings)
        tally = LongTexts.of(long_texts) if is_plain else _unsplit(long_texts)
        segmented = segment_texts(texts, translation_segmenter(self, split and is_plain), tally, first_line)
        return inference.translate_segmented(
            self, segmented, n_best, settings, first_line, searching, shortlist, cancellation
        )

    def stream_translation(
        self,
        text: str,
        *,
        settings: DecodingConfig | None = None,
        line: int = 1,
        split: bool = True,
        long_texts: LongTextPolicy | LongTexts = "stop",
        **decoding: Any,
    ) -> Generator[str, None, Translation]:
        """Yield the best translation in parts once each is certain (token by token with beam_size=1 and in sampling).

        Return the whole translation. A text that is too long is refused, or skipped with long_texts="skip".
        """
        check_text(text)
        self.require_task("translate")
        chosen = self._resolve_settings(settings, self.decoding, **decoding)
        segmenter = translation_segmenter(self, split and can_be_split(1, chosen))
        [segmented] = segment_texts([text], segmenter, _unsplit(long_texts), line)
        if segmented is None:
            return Translation.skipped()
        joined, found = "", list[Translation]()
        for part, gap in zip(segmented.parts, ("", *segmented.gaps), strict=False):  # no parts if the text is empty
            [encoded] = self._encode([part])
            if not encoded:
                found += to_translations(self, [], chosen)
                continue
            streaming, is_first = inference.stream(self, encoded, chosen, line), True
            while True:
                try:
                    shown = next(streaming)
                except StopIteration as done:
                    found += to_translations(self, [done.value], chosen)
                    break
                if is_first:
                    shown = gap_between(joined, shown, gap) + shown
                is_first, joined = False, joined + shown
                yield shown
        return join_translations(segmented, found or to_translations(self, [], chosen), chosen, joined)

    def alternatives(
        self,
        text: str,
        position: int,
        count: int = 5,
        *,
        settings: DecodingConfig | None = None,
        line: int = 1,
        long_texts: LongTextPolicy | LongTexts = "stop",
        **decoding: Any,
    ) -> list[Translation]:
        """Return the `count` likeliest tokens at a position of the best translation, counted in tokens from 0.

        Each comes as the best translation that continues from it, likeliest first. A text that is too long is refused,
        or gives one empty translation with long_texts="skip".
        """
        check_text(text)
        self.require_task("translate")
        chosen = self._resolve_settings(settings, self.decoding, **decoding)
        if segment_texts([text], translation_segmenter(self, split=False), _unsplit(long_texts), line) == [None]:
            return [Translation.skipped()]
        [encoded] = self._encode([text])
        found = inference.alternatives(self, encoded, position, count, chosen, line) if encoded else []
        return to_translations(self, found, chosen)

    def learn_shortlist(
        self, pairs: Sequence[Pair], best: int = CANDIDATES_PER_TOKEN, frequent: int = NUM_FREQUENT
    ) -> Shortlist:
        """Return the target tokens that each source token may become, from pairs such as the training pairs."""
        self.require_task("translate")
        return learn_shortlist(self, pairs, best, frequent)

    def load_shortlist(self, path: StrPath) -> Shortlist:
        """Return a saved shortlist; raise DataError if it was made for another tokenizer."""
        return Shortlist.load(paths_of(path)[0], tokenizer_fingerprint(self.tokenizer))

    def caption_images(
        self, paths: StrPath | Sequence[StrPath], n_best: int = 1, settings: DecodingConfig | None = None
    ) -> list[list[Translation]]:
        """Return the `n_best` captions of each PNG, best first."""
        self.require_task("translate", images=True)
        chosen = settings or self.config.decoding
        self.check_n_best(n_best, chosen)
        pixels_NCYX = read_images(self.config.model, paths_of(paths))
        found = generate_captions(self, pixels_NCYX, chosen, n_best)
        return [to_translations(self, hypotheses, chosen) for hypotheses in found]

    def score(
        self, pairs: Sequence[Pair], settings: DecodingConfig | None = None, path: StrPath = "pairs"
    ) -> list[ScoredOutput]:
        """Return the log-probability of each pair's target, token by token; an error names the line in `path`."""
        self.require_task("translate")
        return score_pairs(self, pairs, settings or self.config.decoding, path)

    def evaluate(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> "TranslationReport":
        """Return the scores of the model's translations of these pairs, and the perplexity of their references."""
        return self.score_texts([one.text for one in self.translate_pairs(pairs, settings)], pairs)

    def translate_pairs(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> list[Translation]:
        """Return the translations of the pairs' sources, never split: a score is that of the model on whole sources."""
        sources = [pair.source for pair in pairs]
        return self.translate_many(sources, settings=settings or self.config.decoding, split=False, long_texts="stop")

    def score_texts(self, texts: Sequence[str], pairs: Sequence[Pair]) -> "TranslationReport":
        """Return the scores of given translations of these pairs, and the perplexity of the references."""
        return score_translations(self, texts, pairs)


def _unsplit(long_texts: LongTextPolicy | LongTexts) -> LongTexts:
    """Return the policy for requests that cannot be answered in parts: long texts are skipped or refused."""
    tally = LongTexts.of(long_texts)
    return LongTexts("stop") if tally.policy == "split" else tally


def can_be_split(n_best: int, settings: DecodingConfig) -> bool:
    """Whether a text may be translated in parts: one hypothesis, and no constraint on the text as a whole."""
    return n_best == 1 and not settings.prefix and not settings.include
