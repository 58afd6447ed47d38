"""`clearhead evaluate`: scores with signatures, and two models against each other."""

import json
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Beam, Folder, Json, Pairs, Settings, Threads, decoding_settings, use_threads

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def evaluate(
    folder: Folder,
    pairs: Pairs,
    against: Annotated[Path | None, typer.Option("--against", help="Another model: paired bootstrap.")] = None,
    beam: Beam = None,
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Score a model on a test set: BLEU and chrF with sacreBLEU signatures, exact match, perplexity.

    Example: clearhead evaluate runs/de test.tsv --against runs/old
    """
    from clearhead.api import load
    from clearhead.data.corpus import load_pairs
    from clearhead.evaluation.comparison import compare_texts
    from clearhead.tasks.translate import reference_text, scoring_tokenizer

    use_threads(threads)
    overrides = decoding_settings(settings, beam)
    models = [load(path) for path in (folder, against) if path]
    corpus = load_pairs(pairs)
    texts, reports = [], []
    for model in models:
        texts.append([one.text for one in model.translate_pairs(corpus.pairs, model.decoding(**overrides))])
        reports.append(model.score_texts(texts[-1], corpus.pairs))
    output = dict(reports[0].to_json())
    shown = str(reports[0])
    if against:
        references = [reference_text(models[0].tokenizer, pair.target) for pair in corpus.pairs]
        comparison = compare_texts(texts[0], texts[1], references, tokenize=scoring_tokenizer(models[0].config))
        output["against"] = {"model": str(against), **reports[1].to_json(), "comparison": comparison.to_json()}
        shown = f"{shown}\n\nagainst {against}\n{reports[1]}\n\n{comparison}"
    for line in corpus.skips.lines():
        typer.echo(f"skipped {line}", err=True)
    print(json.dumps(output, ensure_ascii=False) if as_json else shown)
