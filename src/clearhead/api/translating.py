"""The verbs of models that write from a source: translations of texts, captions of pictures, scores of given ones."""

from collections.abc import Generator, Sequence
from typing import Any

from clearhead.api.loaded import Loaded, StrPath, paths_of
from clearhead.config import DecodingConfig
from clearhead.data.pairs import Pair
from clearhead.data.shortlist import BEST, FREQUENT, Shortlist
from clearhead.decoding.engine import Engine
from clearhead.evaluation.metrics import Report
from clearhead.tasks import outputs
from clearhead.tasks.caption import write_captions
from clearhead.tasks.constraints import constraints_of
from clearhead.tasks.image import read_pictures
from clearhead.tasks.outputs import Translation, translations
from clearhead.tasks.scoring import Scored, score_pairs
from clearhead.tasks.searching import search_texts
from clearhead.tasks.shortlisting import fingerprint_of, learn_shortlist
from clearhead.tasks.translate import score_translations


class Translating(Loaded):
    """What a model that reads a text or a picture writes."""

    def translate(
        self,
        text: str,
        *,
        beam: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "torch",
        **decoding: Any,
    ) -> Translation:
        """The best translation of a sentence. More settings by name, such as include=["Hund"] or prefix="Der"."""
        return self.translate_many([text], beam=beam, settings=settings, engine=engine, **decoding)[0]

    def translate_many(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "torch",
        shortlist: Shortlist | None = None,
        **decoding: Any,
    ) -> list[Translation]:
        """The best translation of each sentence, batched; by the torch engine each is the same as if it were alone."""
        chosen = self._chosen(settings, self.decoding, beam=beam, **decoding)
        return [best[0] for best in self.translate_n_best(texts, 1, chosen, engine=engine, shortlist=shortlist)]

    def translate_n_best(
        self,
        texts: Sequence[str],
        n_best: int,
        settings: DecodingConfig,
        first_line: int = 1,
        engine: Engine | str = "torch",
        shortlist: Shortlist | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first. An empty text gives one empty translation.

        Samples come in the order in which they were drawn. An error names the text by its line, counted from
        `first_line`. `engine` is a name or what `engine()` gave; `shortlist` what `load_shortlist()` gave,
        the same for both.
        """
        self.need("translate")
        self.check_n_best(n_best, settings)
        searching = self.engine(engine, shortlist=shortlist) if isinstance(engine, str) else engine
        found = search_texts(self, self._encode(texts), n_best, settings, first_line, searching, shortlist)
        return [translations(self, hypotheses, settings) for hypotheses in found]

    def stream_translation(
        self, text: str, *, settings: DecodingConfig | None = None, line: int = 1, **decoding: Any
    ) -> Generator[str, None, Translation]:
        """The best translation in parts, as soon as each is certain: with beam=1 and in sampling piece by piece."""
        self.need("translate")
        chosen = self._chosen(settings, self.decoding, **decoding)
        [encoded] = self._encode([text])
        if not encoded:
            return translations(self, [], chosen)[0]
        best = yield from outputs.stream(self, encoded, chosen, line)
        return translations(self, [best], chosen)[0]

    def alternatives(
        self,
        text: str,
        position: int,
        count: int = 5,
        *,
        settings: DecodingConfig | None = None,
        line: int = 1,
        **decoding: Any,
    ) -> list[Translation]:
        """What else could stand at a position of the best translation, counted in pieces from 0.

        The `count` likeliest pieces there, likeliest first, each with the best translation that goes on from it.
        """
        self.need("translate")
        chosen = self._chosen(settings, self.decoding, **decoding)
        [encoded] = self._encode([text])
        found = outputs.alternatives(self, encoded, position, count, chosen, line) if encoded else []
        return translations(self, found, chosen)

    def learn_shortlist(self, pairs: Sequence[Pair], best: int = BEST, frequent: int = FREQUENT) -> Shortlist:
        """The pieces that each source piece may become, from pairs such as the model was trained on."""
        self.need("translate")
        return learn_shortlist(self, pairs, best, frequent)

    def load_shortlist(self, path: StrPath) -> Shortlist:
        """A shortlist that was saved to a file, made for this model's tokenizer."""
        return Shortlist.load(paths_of(path)[0], fingerprint_of(self.tokenizer))

    def caption_pictures(
        self, paths: StrPath | Sequence[StrPath], n_best: int = 1, settings: DecodingConfig | None = None
    ) -> list[list[Translation]]:
        """The `n_best` texts about each PNG, best first."""
        self.need("translate", pictures=True)
        chosen = settings or self.config.decoding
        self.check_n_best(n_best, chosen)
        pixels_NCYX = read_pictures(self.config.model, paths_of(paths))
        found = write_captions(self.network, pixels_NCYX, chosen, n_best, constraints_of(chosen, self.tokenizer))
        return [translations(self, hypotheses, chosen) for hypotheses in found]

    def score(
        self, pairs: Sequence[Pair], settings: DecodingConfig | None = None, path: StrPath = "pairs"
    ) -> list[Scored]:
        """How probable the model finds each pair's target, token by token; an error names the line in `path`."""
        self.need("translate")
        return score_pairs(self, pairs, settings or self.config.decoding, path)

    def evaluate(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> Report:
        """Scores of the model's translations of these pairs, and the perplexity of their references."""
        return self.score_texts([one.text for one in self.translate_pairs(pairs, settings)], pairs)

    def translate_pairs(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> list[Translation]:
        """The translations of the pairs' sources."""
        return self.translate_many([pair.source for pair in pairs], settings=settings or self.config.decoding)

    def score_texts(self, texts: Sequence[str], pairs: Sequence[Pair]) -> Report:
        """Scores of given translations of these pairs, and the perplexity of the references under this model."""
        return score_translations(self, texts, pairs)
