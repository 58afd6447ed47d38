"""`clearhead align`: word alignments of given pairs."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import (
    ColumnsOption,
    ComputeType,
    EngineName,
    Folder,
    Json,
    PairFiles,
    Tag,
    Threads,
    table_settings,
    use_threads,
)

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def align(
    folder: Folder,
    files: PairFiles,
    gold: Annotated[
        Path | None,
        typer.Option("--gold", metavar="FILE.jsonl", help="Choose the layer and head with these gold alignments."),
    ] = None,
    layer: Annotated[int | None, typer.Option("--layer", min=0, help="Decoder layer, counted from 0.")] = None,
    head: Annotated[
        int | None, typer.Option("--head", min=0, help="Head of --layer, counted from 0. [default: mean of the heads]")
    ] = None,
    columns: ColumnsOption = "",
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Print the word alignment of each given pair by the attention of a model, one line per pair.

    Lines are in Pharaoh format: 0-0 1-2 links the first words, and the second source word to the third target word.
    Words are runs of letters and digits, and punctuation marks; --json includes them. --gold chooses the layer and the
    head with the lowest alignment error rate on pairs with gold alignments, such as those of
    `clearhead data grammar --split valid --out gold.jsonl`. A skipped pair gives an empty line; --json states the
    reason.

    Example: clearhead align runs/de test.tsv --gold gold.jsonl
    """
    from clearhead.api import load
    from clearhead.cli.pairs import answer_pairs
    from clearhead.data.readers.tables import TableOptions
    from clearhead.errors import ConfigError
    from clearhead.inspection.analyses.word_alignment import default_head
    from clearhead.inspection.trace.head_ref import HeadRef

    use_threads(threads)
    if gold is not None and (layer is not None or head is not None):
        raise ConfigError("--gold chooses the layer and the head; leave out --layer and --head, or leave out --gold")
    if head is not None and layer is None:
        raise ConfigError("--head needs --layer, because heads are counted per layer")
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    model.require_task("translate")
    model = model.with_table(table_settings([], columns))
    if gold is not None:
        found = model.choose_head(gold)
        chosen = found.head_ref
        typer.echo(
            f"{chosen}: alignment error rate {found.error_rate:.4f} on {found.num_pairs:,} pairs of {gold}", err=True
        )
    elif layer is not None:
        chosen = HeadRef("cross", layer, head)
    else:
        chosen = default_head(model)
        typer.echo(f"{chosen} (default head; --gold FILE.jsonl chooses the best one)", err=True)
    table = TableOptions.from_config(model.config.data)
    answer_pairs(
        files, table, lambda pairs: model.align(pairs, chosen, files[0]), lambda alignment: alignment.pharaoh, as_json
    )
