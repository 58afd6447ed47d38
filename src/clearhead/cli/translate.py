"""`clearhead translate`: lines or pictures in, lines out."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Beam, Folder, Json, Pictures, Settings, Threads, decoding_settings, use_threads
from clearhead.cli.stream import given_lines

if TYPE_CHECKING:
    from clearhead.api import Translation

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def translate(
    folder: Folder,
    pictures: Pictures = None,
    beam: Beam = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="Translations of each line.")] = 1,
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Translate lines from standard input, in order; at a terminal, a prompt to type into.

    A model for captions is given pictures as files instead. With --n-best N each line or picture gives N lines. With
    --json each gives one object.

    Example: clearhead translate runs/de < in.txt > out.txt
    """
    from clearhead.api import load
    from clearhead.errors import DecodingError

    use_threads(threads)
    model = load(folder)
    model.need("translate", pictures=bool(pictures))
    decoding = model.decoding(**decoding_settings(settings, beam))
    if n_best > decoding.beam:
        raise DecodingError(f"--n-best {n_best} needs a beam of at least {n_best}, not {decoding.beam}")
    if pictures:
        for path, found in zip(pictures, model.caption_pictures(pictures, n_best, decoding), strict=True):
            _show(str(path), found, as_json)
        return
    first = 1
    for lines in given_lines():
        for line, found in zip(lines, model.translate_n_best(lines, n_best, decoding, first), strict=True):
            _show(line, found, as_json)
        sys.stdout.flush()
        first += len(lines)


def _show(line: str, found: "list[Translation]", as_json: bool) -> None:
    if as_json:
        best = found[0].to_json()
        record = {"source": line, **best}
        if len(found) > 1:
            record["n_best"] = [one.to_json() for one in found]
        print(json.dumps(record, ensure_ascii=False))
    else:
        for one in found:
            print(one.text)
