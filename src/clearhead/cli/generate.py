"""`clearhead generate`: continue a prompt, printing the text while it is generated."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clearhead.cli.options import (
    Alternatives,
    Beam,
    ComputeType,
    DecodingSettings,
    EngineName,
    Exclude,
    Folder,
    Include,
    Json,
    Threads,
    decoding_settings,
    use_threads,
    warn_untrained,
)
from clearhead.errors import DecodingError

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.config import DecodingConfig
    from clearhead.engines.engine import Engine
    from clearhead.tasks.generated_text import GeneratedText

app = typer.Typer(rich_markup_mode=None, add_completion=False)


MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", help="Maximum number of generated tokens. [default: the model's, usually 200]"),
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Sampling temperature; 0: greedy search. [default: 1]")
]
TopK = Annotated[
    int | None, typer.Option("--top-k", help="Sample from the K most probable tokens; 0: all. [default: 0]")
]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", help="Sample from the most probable tokens up to this total probability. [default: 1]"),
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the output before this text; repeatable.")
]
Texts = Annotated[int, typer.Option("--n-best", "--samples", min=1, help="Number of hypotheses or samples.")]


@app.command()
def generate(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.", show_default=False)] = "",
    lines: Annotated[
        bool, typer.Option("--lines", help="Read prompts from standard input, one per line; requires --json.")
    ] = False,
    long_lines: Annotated[
        Literal["skip", "stop"],
        typer.Option(
            "--long-lines", help="Prompts with more tokens than the model accepts: skip (empty output) or stop (error)."
        ),
    ] = "skip",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random seed for sampling. [default: 0]")] = None,
    stop: Stop = None,
    beam: Beam = None,
    n_best: Texts = 1,
    include: Include = None,
    exclude: Exclude = None,
    alternatives: Alternatives = None,
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: DecodingSettings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Continue a prompt, token by token; without a prompt, generate from the beginning of a document.

    By default, tokens are sampled, unless the settings of the model select beam search; --beam selects beam search. The
    output is the prompt followed by the generated text; with --json, one object with both. With --lines, every prompt
    gives --n-best objects, also a prompt that is skipped.

    Example: clearhead generate runs/tales "Once upon a time" --temperature 0.8 --max-tokens 100
    """
    from clearhead.api import load
    from clearhead.tasks.decoding_settings import infer_method

    use_threads(threads)
    model = load(folder, engine=engine, compute_type=compute_type)
    model.require_task("generate")
    sampling = _without_defaults(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop
    )
    overrides = _without_defaults(include=include, exclude=exclude, sampling=sampling)
    decoding = model.decoding("generate", **infer_method(decoding_settings(settings, beam, overrides)))
    _check(model, decoding, n_best, alternatives, lines, bool(prompt) or not as_json)
    generator = _Generator(model, decoding, n_best, model.engine(token_log_probs=as_json))
    warn_untrained(model)
    if lines:
        _answer_lines(generator, long_lines)
    elif alternatives is not None:
        _print_all(prompt, model.generate_alternatives(prompt, alternatives, n_best, settings=decoding), as_json)
    elif as_json:
        _print_all(prompt, generator.texts([prompt])[0], as_json)
    else:
        _stream_samples(generator, prompt)


def _without_defaults(**options: Any) -> dict[str, Any]:
    """Return the options that the user has set; typer passes empty lists for unset ones."""
    return {name: value for name, value in options.items() if value is not None and value != [] and value != {}}


def _check(
    model: "Model",
    settings: "DecodingConfig",
    n_best: int,
    alternatives: int | None,
    lines: bool,
    is_single: bool,
) -> None:
    """Raise DecodingError for options that exclude each other; `is_single`: the options require a single prompt."""
    if lines and (alternatives is not None or is_single):
        raise DecodingError(
            "--lines reads prompts from standard input: add --json, leave out PROMPT and --alternatives-at"
        )
    if alternatives is None:
        model.check_n_best(n_best, settings)


@dataclass(frozen=True)
class _Generator:
    """A model with the options that apply to every prompt."""

    model: "Model"
    settings: "DecodingConfig"
    n_best: int
    engine: "Engine"

    def texts(self, prompts: list[str]) -> "list[list[GeneratedText]]":
        return self.model.generate_n_best(prompts, self.n_best, self.settings, self.engine)


def _answer_lines(generator: _Generator, long_lines: Literal["skip", "stop"]) -> None:
    from clearhead.cli.stdin_batches import answer_lines
    from clearhead.tasks.long_texts import LongTexts

    long_texts = LongTexts(long_lines)

    def answer(prompts: list[str], first: int) -> Iterator[str]:
        model, settings = generator.model, generator.settings
        texts = model.generate_n_best(
            prompts, generator.n_best, settings, generator.engine, first_line=first, long_texts=long_texts
        )
        for prompt, hypotheses in zip(prompts, texts, strict=True):
            yield from (_json_line(prompt, text) for text in hypotheses)

    answer_lines(answer, long_texts)


def _stream_samples(generator: _Generator, prompt: str) -> None:
    """Print each sample while it is generated, or all hypotheses of a beam search at its end."""
    if generator.n_best == 1 or generator.settings.method == "sample":
        for number in range(generator.n_best):
            parts = generator.model.stream(prompt, sample=number, settings=generator.settings)
            _print(prompt, parts, number, generator.n_best)
    else:
        _print_all(prompt, generator.texts([prompt])[0], as_json=False)


def _print_all(prompt: str, texts: "list[GeneratedText]", as_json: bool) -> None:
    for number, text in enumerate(texts):
        if as_json:
            print(_json_line(prompt, text), flush=True)
        else:
            _print(prompt, [text.text], number, len(texts))


def _json_line(prompt: str, text: "GeneratedText") -> str:
    return json.dumps({"prompt": prompt, **text.to_json()}, ensure_ascii=False)


def _print(prompt: str, parts: Iterable[str], number: int, count: int) -> None:
    """Print one text part by part; if there are several texts, under its number."""
    remaining = iter(parts)
    first = next(remaining, "")  # errors in the prompt or the settings are raised before any output
    sys.stdout.write((f"--- {number + 1}\n" if count > 1 else "") + prompt + first)
    sys.stdout.flush()
    for part in remaining:
        sys.stdout.write(part)
        sys.stdout.flush()
    sys.stdout.write("\n")
