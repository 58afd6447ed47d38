"""Methods of a model that translate texts, caption images and score translations."""

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
        """Return the translation of a text, or of each text of a list; `options` are those of `translate_many`."""
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
        """Return the best translation of each text; batching does not change the results.

        Decoding settings are passed as keyword arguments, such as include=["Hund"] or prefix="Der", or all together as
        `settings`. The other arguments are described in `translate_n_best`.
        """
        settings = self._resolve_settings(settings, self.decoding, beam_size=beam_size, **decoding)
        results = self.translate_n_best(
            texts, 1, settings, engine=engine, shortlist=shortlist, split=split, long_texts=long_texts
        )
        return [hypotheses[0] for hypotheses in results]

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

        With `split`, a model trained on single sentences translates each sentence of a text separately and joins the
        translations with the original whitespace. `long_texts` is the policy for a text with more tokens than the model
        accepts: split (translate its parts), skip (return an empty translation) or stop (raise DecodingError). With
        several hypotheses, a prefix or required words, texts are not split, and "split" means "stop".

        Samples are in the order in which they were drawn. An error names a text by its line number, counted from
        `first_line`. `engine` is a name or the result of `engine()`; `shortlist` is the result of `load_shortlist()`.
        If another thread sets `cancellation`, the search ends within one step and raises RequestCancelledError.
        """
        texts = check_texts(texts)
        self.require_task("translate")
        self.check_n_best(n_best, settings)
        if isinstance(engine, str):
            engine = self.engine(engine)
        is_splittable = can_be_split(n_best, settings)
        policy = LongTexts.of(long_texts) if is_splittable else _stop_or_skip(long_texts)
        segmented = segment_texts(texts, translation_segmenter(self, split and is_splittable), policy, first_line)
        return inference.translate_segmented(
            self, segmented, n_best, settings, first_line, engine, shortlist, cancellation
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
        """Yield parts of the best translation as soon as no hypothesis can change them, and return all of it.

        In greedy search and in sampling, each token is yielded at once. A text with more tokens than the model accepts
        raises DecodingError, or with long_texts="skip" gives an empty translation.
        """
        check_text(text)
        self.require_task("translate")
        settings = self._resolve_settings(settings, self.decoding, **decoding)
        segmenter = translation_segmenter(self, split and can_be_split(1, settings))
        [segmented] = segment_texts([text], segmenter, _stop_or_skip(long_texts), line)
        if segmented is None:
            return Translation.skipped()
        joined, translations = "", list[Translation]()
        for part, gap in zip(segmented.parts, ("", *segmented.gaps), strict=False):  # no parts if the text is empty
            [encoded] = self._encode([part])
            if not encoded:
                translations += to_translations(self, [], settings)
                continue
            stream, is_first = inference.stream(self, encoded, settings, line), True
            while True:
                try:
                    output = next(stream)
                except StopIteration as done:
                    translations += to_translations(self, [done.value], settings)
                    break
                if is_first:
                    output = gap_between(joined, output, gap) + output
                is_first, joined = False, joined + output
                yield output
        return join_translations(segmented, translations or to_translations(self, [], settings), settings, joined)

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
        """Return `count` translations that differ in the token at `position` of the best translation.

        They contain the `count` most probable tokens at this position (counted in tokens from 0), most probable first,
        each followed by its best continuation. A text with more tokens than the model accepts raises DecodingError, or
        with long_texts="skip" gives one empty translation.
        """
        check_text(text)
        self.require_task("translate")
        settings = self._resolve_settings(settings, self.decoding, **decoding)
        policy = _stop_or_skip(long_texts)
        if segment_texts([text], translation_segmenter(self, split=False), policy, line) == [None]:
            return [Translation.skipped()]
        [encoded] = self._encode([text])
        hypotheses = inference.alternatives(self, encoded, position, count, settings, line) if encoded else []
        return to_translations(self, hypotheses, settings)

    def learn_shortlist(
        self, pairs: Sequence[Pair], best: int = CANDIDATES_PER_TOKEN, frequent: int = NUM_FREQUENT
    ) -> Shortlist:
        """Return a shortlist learned from sentence pairs, such as those the model was trained on.

        It lists the `best` target tokens for each source token, and the `frequent` most frequent target tokens.
        """
        self.require_task("translate")
        return learn_shortlist(self, pairs, best, frequent)

    def load_shortlist(self, path: StrPath) -> Shortlist:
        """Return a saved shortlist; raise DataError if it was made for another tokenizer."""
        return Shortlist.load(paths_of(path)[0], tokenizer_fingerprint(self.tokenizer))

    def caption_images(
        self, paths: StrPath | Sequence[StrPath], n_best: int = 1, settings: DecodingConfig | None = None
    ) -> list[list[Translation]]:
        """Return the `n_best` captions of each PNG image, best first."""
        self.require_task("translate", images=True)
        settings = settings or self.config.decoding
        self.check_n_best(n_best, settings)
        pixels_NCYX = read_images(self.config.model, paths_of(paths))
        results = generate_captions(self, pixels_NCYX, settings, n_best)
        return [to_translations(self, hypotheses, settings) for hypotheses in results]

    def score(
        self, pairs: Sequence[Pair], settings: DecodingConfig | None = None, path: StrPath = "pairs"
    ) -> list[ScoredOutput]:
        """Return the log-probability of each token of each pair's target.

        An error names the line of the pair in the file `path`.
        """
        self.require_task("translate")
        return score_pairs(self, pairs, settings or self.config.decoding, path)

    def evaluate(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> "TranslationReport":
        """Return the scores of the model's translations of these pairs, and the perplexity of their references."""
        translations = self.translate_pairs(pairs, settings)
        return self.score_texts([translation.text for translation in translations], pairs)

    def translate_pairs(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> list[Translation]:
        """Return the translations of the pairs' sources, which are not split, so that scores refer to whole sources."""
        sources = [pair.source for pair in pairs]
        return self.translate_many(sources, settings=settings or self.config.decoding, split=False, long_texts="stop")

    def score_texts(self, texts: Sequence[str], pairs: Sequence[Pair]) -> "TranslationReport":
        """Return the scores of given translations of these pairs, and the perplexity of the references."""
        return score_translations(self, texts, pairs)


def _stop_or_skip(long_texts: LongTextPolicy | LongTexts) -> LongTexts:
    """Return the policy for requests whose texts cannot be split: "stop" instead of "split"."""
    policy = LongTexts.of(long_texts)
    return LongTexts("stop") if policy.policy == "split" else policy


def can_be_split(n_best: int, settings: DecodingConfig) -> bool:
    """Return whether texts may be split: only one hypothesis is requested, and no prefix or required words."""
    return n_best == 1 and not settings.prefix and not settings.include
