"""Translators with one protocol: the native engine, the torch engine, and CTranslate2's Python package.

    {"command": "open", "kind": "native", "bundle": ..., "lines": ..., "compute_type": "float32"}   -> nothing
    {"command": "configure", "setting": {...}}                  -> nothing; threads, batches, maximum length
    {"command": "translate", "beam": 4, "every": 1, "is_single": false}    -> sentences, tokens, seconds
    {"command": "translate_file", "beam": 4, "output": ...}                -> sentences, tokens, seconds
    {"command": "outputs", "beam": 4}                                      -> token ids of every sentence

With `min_seconds`, `translate` and `translate_file` are repeated for at least this time, since some passes take less
than a tenth of a second. `translate` measures from tokens to tokens in the format of the engine's Python interface:
ids, or strings for CTranslate2. `translate_file` measures from text file to text file, with the same tokenizer.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness.protocol import answer_with
from clearhead.api import load
from clearhead.config import DecodingConfig
from clearhead.decoding.requests import AllowedTokens, Constraints, Request
from clearhead.engines.engine import Engine
from clearhead.engines.threads import set_num_threads

LENGTH_PENALTY = 0.6
MAX_LENGTH = 100
"""Tokens per sentence at most, unless `configure` says otherwise."""

Setting = dict[str, Any]
Result = TypeVar("Result")


@cache
def decoding_settings(beam: int, max_length: int = MAX_LENGTH) -> DecodingConfig:
    """Return the settings of all measurements; CTranslate2 has the same length penalty and stopping rule."""
    return DecodingConfig(beam_size=beam, length_penalty=LENGTH_PENALTY, max_length=str(max_length))


class Translator(ABC):
    """Engine with a loaded model."""

    def __init__(self, bundle: Path, compute_type: str) -> None:
        self.bundle, self.compute_type = bundle, compute_type
        self.model = load(bundle, compute_type=compute_type)
        self.tokenizer = self.model.tokenizer

    @abstractmethod
    def configure(self, setting: Setting) -> None:
        """Set the number of threads and the engine's further options."""

    @abstractmethod
    def inputs(self, lines: list[str]) -> list[Any]:
        """Return the tokens of each line in the engine's format."""

    @abstractmethod
    def run(self, inputs: list[Any], beam: int) -> list[Any]:
        """Return the best output of each input, in the engine's format."""

    @abstractmethod
    def ids(self, output: Any) -> list[int]:
        """Return the token ids of an output."""

    @abstractmethod
    def texts(self, lines: list[str], beam: int) -> tuple[list[str], int]:
        """Return the translation of each line, and the number of tokens."""

    def with_end(self, lines: list[str]) -> list[tuple[int, ...]]:
        """Return the ids of each line, with the end token."""
        return [(*ids, self.tokenizer.eos_id) for ids in self.tokenizer.encode_batch(lines)]


class Clearhead(Translator):
    """Engine of clearhead, used through its Python interface."""

    def __init__(self, bundle: Path, compute_type: str, engine: str) -> None:
        super().__init__(bundle, compute_type)
        self.name = engine
        self.shortlist: Any = None

    def configure(self, setting: Setting) -> None:
        set_num_threads(setting["threads"])
        self.max_length = setting.get("max_length", MAX_LENGTH)
        self.engine: Engine = self.model.engine(self.name, self.compute_type, token_log_probs=False)
        if setting.get("shortlist"):
            self.shortlist = self.model.load_shortlist(setting["shortlist"])

    def inputs(self, lines: list[str]) -> list[tuple[int, ...]]:
        return self.with_end(lines)

    def run(self, inputs: list[tuple[int, ...]], beam: int) -> list[Any]:
        requests = [Request(ids, 1, self._constraints(ids)) for ids in inputs]
        return [results[0] for results in self.engine.run(requests, decoding_settings(beam, self.max_length))]

    def _constraints(self, ids: tuple[int, ...]) -> Constraints | None:
        if self.shortlist is None:
            return None
        return Constraints(shortlist=AllowedTokens(self.shortlist.of(ids), self.tokenizer.target.vocab_size))

    def ids(self, output: Any) -> list[int]:
        return list(output.tokens)

    def texts(self, lines: list[str], beam: int) -> tuple[list[str], int]:
        settings = decoding_settings(beam, self.max_length)
        outputs = self.model.translate_many(lines, settings=settings, engine=self.engine)
        return [output.text for output in outputs], sum(len(output.tokens) for output in outputs)


class CTranslate2(Translator):
    """CTranslate2's Python package, used as in its documentation."""

    def __init__(self, bundle: Path, compute_type: str) -> None:
        super().__init__(bundle, compute_type)
        vocab = range(self.tokenizer.vocab_size)
        self.tokens = [self.tokenizer.token(index) for index in vocab]
        self.id_of = {token: index for index, token in enumerate(self.tokens)}
        config = self.model.config.model
        self.suppressed = [[self.tokens[index]] for index in sorted((config.pad_id, config.decoder_start_id))]

    def configure(self, setting: Setting) -> None:
        import ctranslate2  # type: ignore[import-untyped]

        workers = {"inter_threads": setting["inter_threads"], "intra_threads": setting["intra_threads"]}
        self.translator = ctranslate2.Translator(
            str(self.bundle / "ctranslate2"), device="cpu", compute_type=self.compute_type, **workers
        )
        self.max_length = setting.get("max_length", MAX_LENGTH)
        self.batch = {"batch_type": setting["batch_type"], "max_batch_size": setting["max_batch_size"]}

    def inputs(self, lines: list[str]) -> list[list[str]]:
        return [[self.tokens[index] for index in ids] for ids in self.with_end(lines)]

    def run(self, inputs: list[list[str]], beam: int) -> list[Any]:
        return list(
            self.translator.translate_batch(
                inputs,
                beam_size=beam,
                length_penalty=LENGTH_PENALTY,
                max_decoding_length=self.max_length,
                max_input_length=0,
                suppress_sequences=self.suppressed,
                **self.batch,
            )
        )

    def ids(self, output: Any) -> list[int]:
        return [self.id_of[token] for token in output.hypotheses[0]]

    def texts(self, lines: list[str], beam: int) -> tuple[list[str], int]:
        outputs = [self.ids(result) for result in self.run(self.inputs(lines), beam)]
        return [self.tokenizer.decode(output) for output in outputs], sum(map(len, outputs))


KINDS: dict[str, Any] = {
    "native": lambda bundle, compute_type: Clearhead(bundle, compute_type, "native"),
    "torch": lambda bundle, compute_type: Clearhead(bundle, compute_type, "torch"),
    "ctranslate2": CTranslate2,
}


class Server:
    """Server with one method per command."""

    translator: Translator
    lines: list[str]

    def open(self, kind: str, bundle: str, lines: str, compute_type: str) -> dict[str, Any]:
        """Load a model and the sentences to translate."""
        self.file = Path(lines)
        self.lines = self.file.read_text(encoding="utf-8").splitlines()
        self.translator = KINDS[kind](Path(bundle), compute_type)
        return {}

    def configure(self, setting: Setting) -> dict[str, Any]:
        """Set threads and batches."""
        self.translator.configure(setting)
        return {}

    def translate(self, beam: int, every: int, is_single: bool, min_seconds: float = 0) -> dict[str, Any]:
        """Translate every n-th sentence, all in one call or one call per sentence."""
        inputs = self.translator.inputs(self.lines[::every])
        groups = [[each] for each in inputs] if is_single else [inputs]

        def run() -> list[Any]:
            return [output for group in groups for output in self.translator.run(group, beam)]

        outputs, passes, seconds = _repeat(run, min_seconds)
        return {"sentences": passes * len(outputs), "tokens": passes * self._count(outputs), "seconds": seconds}

    def translate_file(self, beam: int, output: str, min_seconds: float = 0) -> dict[str, Any]:
        """Translate the file of sentences to another file."""

        def run() -> tuple[list[str], int]:
            lines = self.file.read_text(encoding="utf-8").splitlines()
            texts, tokens = self.translator.texts(lines, beam)
            Path(output).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
            return texts, tokens

        (texts, tokens), passes, seconds = _repeat(run, min_seconds)
        return {"sentences": passes * len(texts), "tokens": passes * tokens, "seconds": seconds}

    def outputs(self, beam: int) -> dict[str, Any]:
        """Return the token ids of the output of every sentence."""
        outputs = self.translator.run(self.translator.inputs(self.lines), beam)
        return {"outputs": [self.translator.ids(output) for output in outputs]}

    def _count(self, outputs: Iterable[Any]) -> int:
        """Return the number of generated tokens, with the end token of each sentence."""
        return sum(len(self.translator.ids(output)) + 1 for output in outputs)


def _repeat(run: Callable[[], Result], min_seconds: float) -> tuple[Result, int, float]:
    """Repeat for at least `min_seconds`; return the result, the number of passes and their total seconds."""
    began, passes = time.perf_counter(), 0
    while True:
        result = run()
        passes += 1
        seconds = time.perf_counter() - began
        if seconds >= min_seconds:
            return result, passes, seconds


if __name__ == "__main__":
    answer_with(Server())
