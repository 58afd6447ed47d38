"""`clearhead align`: word alignments of sentence pairs."""

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
        typer.Option("--gold", metavar="FILE.jsonl", help="Select the layer and head by these gold alignments."),
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
    """Print the word alignment of each sentence pair, derived from the attention of a translation model.

    Each pair gives one line in Pharaoh format: 0-0 1-2 links the first source word to the first target word, and the
    second to the third. A word is a run of letters and digits, or one punctuation mark; --json lists the words. --gold
    selects the layer and the head with the lowest alignment error rate on pairs with gold alignments, such as those of
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
        raise ConfigError("--gold selects the layer and the head; leave out --layer and --head, or leave out --gold")
    if head is not None and layer is None:
        raise ConfigError("--head needs --layer, because heads are counted per layer")
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    model.require_task("translate", purpose="align translations")
    model = model.with_table(table_settings([], columns))
    if gold is not None:
        best = model.choose_head(gold)
        head_ref = best.head_ref
        typer.echo(
            f"{head_ref}: alignment error rate {best.error_rate:.4f} on {best.num_pairs:,} pairs of {gold}", err=True
        )
    elif layer is not None:
        head_ref = HeadRef("cross", layer, head)
    else:
        head_ref = default_head(model)
        typer.echo(f"{head_ref} (default head; --gold FILE.jsonl selects the best one)", err=True)
    table = TableOptions.from_config(model.config.data)
    answer_pairs(
        files, table, lambda pairs: model.align(pairs, head_ref, files[0]), lambda alignment: alignment.pharaoh, as_json
    )
