"""`clearhead shortlist`: learn a vocabulary shortlist, which makes translation faster."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import ColumnsOption, Folder, PairFiles, Tag, table_settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def shortlist(
    folder: Folder,
    files: PairFiles,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.", show_default=False)],
    best: Annotated[int, typer.Option("--best", min=1, help="Number of target tokens per source token.")] = 50,
    frequent: Annotated[
        int, typer.Option("--frequent", min=0, help="Number of most frequent target tokens, allowed in every sentence.")
    ] = 100,
    columns: ColumnsOption = "",
    tag: Tag = "",
) -> None:
    """Learn from training pairs which target tokens each source token may translate to.

    With `clearhead translate --shortlist FILE` the output layer computes only these tokens, which is faster with a
    large vocabulary. A translation cannot contain a token that is not in the shortlists of its source tokens.

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
        f"wrote {out}: from {len(corpus.records):,} pairs, {learned.mean_length:.1f} tokens per source token on "
        f"average and {len(learned.frequent_F)} for every sentence, of {learned.vocab_size:,}",
        err=True,
    )
