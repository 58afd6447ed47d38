"""`clearhead shortlist`: learn a vocabulary shortlist for faster translation."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import ColumnsOption, Folder, PairFiles, Tag, table_settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def shortlist(
    folder: Folder,
    files: PairFiles,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Shortlist file to write.", show_default=False)],
    best: Annotated[int, typer.Option("--best", min=1, help="Number of listed target tokens per source token.")] = 50,
    frequent: Annotated[
        int, typer.Option("--frequent", min=0, help="Number of most frequent target tokens, allowed in every sentence.")
    ] = 100,
    columns: ColumnsOption = "",
    tag: Tag = "",
) -> None:
    """Learn a vocabulary shortlist: for each source token, the target tokens that it may be translated to.

    With `clearhead translate --shortlist FILE` the output layer computes the logits of listed tokens only, which is
    faster with a large vocabulary. A translation then contains only tokens listed for its source tokens, and the
    --frequent ones.

    Example: clearhead shortlist runs/de pairs.tsv --out runs/de.shortlist
    """
    from clearhead.api import load
    from clearhead.data.readers.pairs import load_pairs
    from clearhead.data.readers.tables import TableOptions

    model = load(folder, tag)
    model.require_task("translate")
    model = model.with_table(table_settings([], columns))
    corpus = load_pairs(files, table=TableOptions.from_config(model.config.data))
    for line in corpus.skips.messages():
        typer.echo(line, err=True)
    learned = model.learn_shortlist(corpus.records, best, frequent)
    learned.save(out)
    typer.echo(
        f"shortlist saved to {out}: learned from {len(corpus.records):,} pairs; on average "
        f"{learned.mean_length:.1f} tokens per source token, and {len(learned.frequent_F)} for every sentence, of "
        f"{learned.vocab_size:,} in the vocabulary",
        err=True,
    )
