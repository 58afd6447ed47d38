"""Continuations of prompts by language models."""

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
        """Return the settings of `generate` with overridden fields of the decoding section and of its sampling.

        `beam_size` selects beam search, and temperature, top_k, top_p, min_p or seed select sampling, unless `method`
        is given.
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
        **named: Any,
    ) -> GeneratedText: ...
    @overload
    def generate(
        self,
        prompt: list[str] | tuple[str, ...],
        *,
        sample: int = 0,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **named: Any,
    ) -> list[GeneratedText]: ...
    def generate(
        self,
        prompt: str | Sequence[str] = "",
        *,
        sample: int = 0,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **named: Any,
    ) -> GeneratedText | list[GeneratedText]:
        """Return the continuation of a prompt, or of each prompt of a list.

        Settings are given by name, such as max_tokens, stop, temperature, seed or beam_size. The same settings give the
        same text; `sample` numbers the samples of one seed.
        """
        chosen = self._resolve_settings(settings, self.generation_settings, **named)
        if isinstance(prompt, str):
            return self.generate_n_best([prompt], 1, chosen, engine, sample)[0][0]
        return [best[0] for best in self.generate_n_best(prompt, 1, chosen, engine, sample)]

    def generate_many(
        self,
        prompts: Sequence[str],
        *,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "",
        **named: Any,
    ) -> list[GeneratedText]:
        """Return the continuation of each prompt, equal to that of `generate` for the prompt alone; batched."""
        chosen = self._resolve_settings(settings, self.generation_settings, **named)
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
        """Return the `n_best` continuations of each prompt, best first; samples from number `sample` on, in order.

        A prompt that is too long is refused, or gives empty texts with long_texts="skip".
        """
        prompts = check_texts(prompts)
        self.require_task("generate")
        self.check_n_best(n_best, settings)
        searching = self.engine(engine) if isinstance(engine, str) else engine
        tally = LongTexts.of(long_texts)
        return inference.generate_texts(self, prompts, n_best, settings, searching, sample, first_line, tally)

    def stream(
        self, prompt: str = "", *, sample: int = 0, settings: DecodingConfig | None = None, **named: Any
    ) -> Generator[str, None, GeneratedText]:
        """Yield the continuation while it is generated: token by token with beam_size=1 and in sampling."""
        check_text(prompt)
        self.require_task("generate")
        return inference.stream(
            self, prompt, self._resolve_settings(settings, self.generation_settings, **named), sample
        )

    def generate_alternatives(
        self, prompt: str, position: int, count: int = 5, *, settings: DecodingConfig | None = None, **named: Any
    ) -> list[GeneratedText]:
        """Return the `count` most probable tokens at a position of the best continuation, counted in tokens from 0.

        Each is returned with the best text that continues from it, most probable token first.
        """
        check_text(prompt)
        self.require_task("generate")
        return inference.alternatives(
            self, prompt, position, count, self._resolve_settings(settings, self.generation_settings, **named)
        )
