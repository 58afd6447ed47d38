"""`clearhead generate`: a prompt in, text that goes on from it out, as it is written."""

import json
import sys
from typing import Annotated

import typer

from clearhead.cli.options import Folder, Json, Threads, use_threads

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def generate(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="[PROMPT]", help="Text to go on from.", show_default=False)] = "",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Most pieces to write. [default: the model's, 200]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Below 1 safer, above 1 wilder; 0: greedy. [default: 1]")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Draw from the K likeliest pieces only; 0: all. [default: 0]")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", help="Draw from the likeliest pieces up to this sum. [default: 1]")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed, the same text. [default: 0]")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this text; may be repeated.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Texts to write, each with its own chance.")] = 1,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Write on from a prompt, piece by piece as it comes; without a prompt, from the beginning of a document.

    The text is printed with its prompt. With --json each sample gives one object, in which they are apart.

    Example: clearhead generate runs/tales "Once upon a time" --temperature 0.8 --max-tokens 100
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder)
    model.need("generate")
    settings = {"max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
                "stop": stop}  # fmt: skip
    for number in range(samples):
        if as_json:
            found = model.generate(prompt, sample=number, **settings)
            print(json.dumps({"prompt": prompt, **found.to_json()}, ensure_ascii=False), flush=True)
            continue
        pieces = model.stream(prompt, sample=number, **settings)
        first = next(pieces, "")  # what is wrong with the prompt or the settings comes before any output
        sys.stdout.write((f"--- {number + 1}\n" if samples > 1 else "") + prompt + first)
        sys.stdout.flush()
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
