"""`clearhead generate`: a prompt in, text that goes on from it out, as it is written."""

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
    EngineName,
    Exclude,
    Folder,
    Include,
    Json,
    Settings,
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
    from clearhead.tasks.language_modeling.inference import GeneratedText

app = typer.Typer(rich_markup_mode=None, add_completion=False)


MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Most pieces to write. [default: the model's, 200]")
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Below 1 safer, above 1 wilder; 0: greedy. [default: 1]")
]
TopK = Annotated[
    int | None, typer.Option("--top-k", help="Draw from the K likeliest pieces only; 0: all. [default: 0]")
]
TopP = Annotated[
    float | None, typer.Option("--top-p", help="Draw from the likeliest pieces up to this sum. [default: 1]")
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this text; may be repeated.")
]
Texts = Annotated[
    int, typer.Option("--n-best", "--samples", min=1, help="Texts to write: the best, or so many samples.")
]


@app.command()
def generate(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="[PROMPT]", help="Text to go on from.", show_default=False)] = "",
    lines: Annotated[
        bool, typer.Option("--lines", help="Prompts from standard input, one a line; needs --json.")
    ] = False,
    long_lines: Annotated[
        Literal["skip", "stop"],
        typer.Option("--long-lines", help="Prompts of --lines with more tokens than the model accepts."),
    ] = "skip",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed, the same text. [default: 0]")] = None,
    stop: Stop = None,
    beam: Beam = None,
    n_best: Texts = 1,
    include: Include = None,
    exclude: Exclude = None,
    alternatives: Alternatives = None,
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Continue a prompt, token by token; without a prompt, generate from the beginning of a document.

    Text is sampled unless the model's settings say otherwise; --beam uses beam search. The text is printed with its
    prompt. With --json each text gives one object with both. With --lines a prompt with more tokens than the model
    accepts gives empty texts.

    Example: clearhead generate runs/tales "Once upon a time" --temperature 0.8 --max-tokens 100
    """
    from clearhead.api import load
    from clearhead.tasks.language_modeling.inference import infer_method

    use_threads(threads)
    model = load(folder, engine=engine, compute_type=compute_type)
    model.require_task("generate")
    sampling = _given(max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop)
    given = _given(include=include, exclude=exclude, sampling=sampling)
    decoding = model.decoding("generate", **infer_method(decoding_settings(settings, beam, given)))
    _check(model, decoding, n_best, alternatives, lines, bool(prompt) or not as_json)
    chosen = model.engine(token_log_probs=as_json)
    warn_untrained(model)
    asked = _Asked(model, decoding, n_best, chosen)
    if lines:
        _answer_lines(asked, long_lines)
    elif alternatives is not None:
        _show_all(prompt, model.generate_alternatives(prompt, alternatives, n_best, settings=decoding), as_json)
    elif as_json:
        _show_all(prompt, asked.texts([prompt])[0], as_json)
    else:
        _write(asked, prompt)


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given; typer has empty lists for those that were not."""
    return {name: value for name, value in options.items() if value is not None and value != [] and value != {}}


def _check(
    model: "Model",
    settings: "DecodingConfig",
    n_best: int,
    alternatives: int | None,
    lines: bool,
    is_for_one: bool,
) -> None:
    """Refuses what does not go together; `is_for_one`: what is asked for makes sense for a single prompt only."""
    if lines and (alternatives is not None or is_for_one):
        raise DecodingError(
            "--lines reads prompts from standard input: add --json, leave out PROMPT and --alternatives-at"
        )
    if alternatives is None:
        model.check_n_best(n_best, settings)


@dataclass(frozen=True)
class _Asked:
    """What is asked of a model, for any prompt."""

    model: "Model"
    settings: "DecodingConfig"
    n_best: int
    engine: "Engine"

    def texts(self, prompts: list[str]) -> "list[list[GeneratedText]]":
        return self.model.generate_n_best(prompts, self.n_best, self.settings, self.engine)


def _answer_lines(asked: _Asked, long_lines: Literal["skip", "stop"]) -> None:
    from clearhead.cli.stdin_batches import answer_lines
    from clearhead.tasks.long_texts import LongTexts

    long_texts = LongTexts(long_lines)

    def answer(prompts: list[str], first: int) -> Iterator[str]:
        model, settings = asked.model, asked.settings
        texts = model.generate_n_best(
            prompts, asked.n_best, settings, asked.engine, first_line=first, long_texts=long_texts
        )
        for prompt, found in zip(prompts, texts, strict=True):
            yield from (_json_line(prompt, one) for one in found)

    answer_lines(answer, long_texts)


def _write(asked: _Asked, prompt: str) -> None:
    """Each text with its prompt: while it is written, or where several are searched for when all are found."""
    if asked.n_best == 1 or asked.settings.method == "sample":
        for number in range(asked.n_best):
            parts = asked.model.stream(prompt, sample=number, settings=asked.settings)
            _print(prompt, parts, number, asked.n_best)
    else:
        _show_all(prompt, asked.texts([prompt])[0], as_json=False)


def _show_all(prompt: str, found: "list[GeneratedText]", as_json: bool) -> None:
    for number, one in enumerate(found):
        if as_json:
            print(_json_line(prompt, one), flush=True)
        else:
            _print(prompt, [one.text], number, len(found))


def _json_line(prompt: str, found: "GeneratedText") -> str:
    return json.dumps({"prompt": prompt, **found.to_json()}, ensure_ascii=False)


def _print(prompt: str, parts: Iterable[str], number: int, count: int) -> None:
    """One text, part by part; with several each under its number."""
    running = iter(parts)
    first = next(running, "")  # what is wrong with the prompt or the settings comes before any output
    sys.stdout.write((f"--- {number + 1}\n" if count > 1 else "") + prompt + first)
    sys.stdout.flush()
    for part in running:
        sys.stdout.write(part)
        sys.stdout.flush()
    sys.stdout.write("\n")
