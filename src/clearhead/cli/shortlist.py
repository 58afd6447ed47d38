"""`clearhead shortlist`: the few pieces that each sentence is likely to need, for faster translation."""

from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import ColumnsOption, Folder, PairFiles, Tag, table_settings

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def shortlist(
    folder: Folder,
    files: PairFiles,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.", show_default=False)],
    best: Annotated[int, typer.Option("--best", min=1, help="Target pieces of each source piece.")] = 50,
    frequent: Annotated[int, typer.Option("--frequent", min=0, help="Target pieces of every sentence.")] = 100,
    columns: ColumnsOption = "",
    tag: Tag = "",
) -> None:
    """Learn from pairs, such as the model was trained on, which target pieces each source piece may become.

    With the file `clearhead translate --shortlist FILE` computes only the likely part of the output layer, which is
    faster where the vocabulary is large; a sentence may lose a rare piece that none of its own has ever become.

    Example: clearhead shortlist runs/de pairs.tsv --out runs/de.shortlist
    """
    from clearhead.api import load
    from clearhead.data.readers.pairs import load_pairs
    from clearhead.data.readers.tables import TableOptions

    model = load(folder, tag)
    model.require_task("translate")
    model = model.with_table(table_settings([], columns))
    corpus = load_pairs(files, table=TableOptions.of(model.config.data))
    for line in corpus.skips.messages():
        typer.echo(line, err=True)
    found = model.learn_shortlist(corpus.records, best, frequent)
    found.save(out)
    typer.echo(
        f"wrote {out}: from {len(corpus.records):,} pairs, {found.mean_length:.1f} pieces for a source piece on "
        f"average, {len(found.frequent_F)} for every sentence, of {found.vocab_size:,}",
        err=True,
    )
