"""Methods of a model that continue prompts."""

from collections.abc import Generator, Sequence
from typing import Any, overload

from clearhead.api.base import ModelBase, check_text, check_texts
from clearhead.config import DecodingConfig
from clearhead.engines.engine import Engine
from clearhead.tasks.decoding_settings import infer_method, nest_sampling_fields
from clearhead.tasks.generated_text import GeneratedText
from clearhead.tasks.language_modeling import inference
from clearhead.tasks.long_texts import LongTextPolicy, LongTexts


class GenerationMethods(ModelBase):
    """Methods of language models."""

    def generation_settings(self, **overrides: Any) -> DecodingConfig:
        """Return the decoding settings of the model with the given ones replaced.

        Arguments are fields of the decoding section or of its `sampling`. Unless `method` is given, `beam_size` selects
        beam search, and temperature, top_k, top_p, min_p or seed select sampling.
        """
        overrides = {name: value for name, value in overrides.items() if value is not None}
        return self.decoding("generate", **infer_method(nest_sampling_fields(overrides)))

    @overload
    def generate(
        self,
        prompt: str = "",
        *,
        sample: int = 0,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **overrides: Any,
    ) -> GeneratedText: ...
    @overload
    def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        *,
        sample: int = 0,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **overrides: Any,
    ) -> list[GeneratedText]: ...
    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        sample: int = 0,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **overrides: Any,
    ) -> GeneratedText | list[GeneratedText]:
        """Return the continuation of a prompt, or of each prompt of a list.

        Decoding settings are passed as keyword arguments, such as max_tokens, stop, temperature, seed or beam_size, or
        all together as `settings`. Equal settings give equal texts; `sample` is the index among the samples of a seed.
        """
        chosen = self._resolve_settings(settings, self.generation_settings, **overrides)
        if isinstance(prompt, str):
            return self.generate_n_best([prompt], 1, chosen, engine, sample)[0][0]
        return [best[0] for best in self.generate_n_best(prompt, 1, chosen, engine, sample)]

    def generate_many(
        self,
        prompts: Sequence[str],
        *,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **overrides: Any,
    ) -> list[GeneratedText]:
        """Return the continuation of each prompt; batching does not change the results."""
        chosen = self._resolve_settings(settings, self.generation_settings, **overrides)
        return [best[0] for best in self.generate_n_best(prompts, 1, chosen, engine)]

    def generate_n_best(
        self,
        prompts: Sequence[str],
        n_best: int,
        settings: DecodingConfig,
        engine: Engine | str = "",
        sample: int = 0,
        first_line: int = 0,
        long_texts: LongTextPolicy | LongTexts = "stop",
    ) -> list[list[GeneratedText]]:
        """Return the `n_best` continuations of each prompt: hypotheses, best first, or samples from index `sample` on.

        A prompt with more tokens than the model accepts raises DecodingError, or with long_texts="skip" gives empty
        texts.
        """
        prompts = check_texts(prompts)
        self.require_task("generate")
        self.check_n_best(n_best, settings)
        if isinstance(engine, str):
            engine = self.engine(engine)
        return inference.generate_texts(
            self, prompts, n_best, settings, engine, sample, first_line, LongTexts.of(long_texts)
        )

    def stream(
        self, prompt: str = "", *, sample: int = 0, settings: DecodingConfig | None = None, **overrides: Any
    ) -> Generator[str, None, GeneratedText]:
        """Yield the continuation while it is generated, token by token in greedy search and in sampling."""
        check_text(prompt)
        self.require_task("generate")
        return inference.stream(
            self, prompt, self._resolve_settings(settings, self.generation_settings, **overrides), sample
        )

    def generate_alternatives(
        self, prompt: str, position: int, count: int = 5, *, settings: DecodingConfig | None = None, **overrides: Any
    ) -> list[GeneratedText]:
        """Return `count` continuations that differ in the token at `position` of the best continuation.

        They contain the `count` most probable tokens at this position (counted in tokens from 0), most probable first,
        each followed by its best continuation.
        """
        check_text(prompt)
        self.require_task("generate")
        return inference.alternatives(
            self, prompt, position, count, self._resolve_settings(settings, self.generation_settings, **overrides)
        )
