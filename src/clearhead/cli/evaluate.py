"""`clearhead evaluate`: scores on a test set, and comparison of two models."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.options import (
    Beam,
    ColumnsOption,
    ComputeType,
    EngineName,
    EvaluationSettings,
    Folder,
    Json,
    Tag,
    TestFiles,
    Threads,
    decoding_settings,
    table_settings,
    use_threads,
)

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.data.readers.pairs import Pair

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def evaluate(
    folder: Folder,
    files: TestFiles,
    against: Annotated[
        Path | None, typer.Option("--against", help="Compare with another model by paired bootstrap.")
    ] = None,
    columns: ColumnsOption = "",
    beam: Beam = None,
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: EvaluationSettings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Evaluate a model on a test set: BLEU and chrF with sacreBLEU signatures, accuracy, F1 or perplexity.

    Example: clearhead evaluate runs/de test.tsv --against runs/old
    """
    from clearhead.api import load
    from clearhead.data.readers.pairs import load_pairs
    from clearhead.data.readers.tables import TableOptions
    from clearhead.errors import ConfigError, TaskError
    from clearhead.tasks.registry import get_task

    use_threads(threads)
    table = table_settings(settings, columns)
    overrides = decoding_settings([each for each in settings if not each.startswith("data.")], beam)
    model = load(folder, tag, engine=engine, compute_type=compute_type).with_table(table)
    if overrides and get_task(model.config.task).verb != "translate":
        raise ConfigError(
            f"{folder} was trained for the task {model.config.task}, which generates no text; leave out --beam and "
            "--set decoding.FIELD"
        )
    if against is None:
        report = model.evaluate_files(files, model.decoding(**overrides), partial(typer.echo, err=True))
        print(json.dumps(report.to_json(), ensure_ascii=False) if as_json else report)
        return
    other = load(against, engine=engine, compute_type=compute_type)
    if tag and other.config.data.source_tags:
        other = other.with_tag(tag)
    for translator in (model, other):
        if translator.config.task != "translate":
            raise TaskError(
                f"--against compares models of the task translate; {translator.folder} was trained for "
                f"{translator.config.task}"
            )
    corpus = load_pairs(files, table=TableOptions.from_config(model.config.data))
    for line in corpus.skips.messages():
        typer.echo(line, err=True)
    output, text = _compare(model, other, corpus.records, overrides)
    print(json.dumps(output, ensure_ascii=False) if as_json else text)


def _compare(
    model: "Model", other: "Model", pairs: "Sequence[Pair]", overrides: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the scores of two translation models on the same pairs and a paired bootstrap, as JSON and as text."""
    from clearhead.evaluation.comparison import compare_texts
    from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer

    def translate(translator: "Model") -> list[str]:
        translations = translator.translate_pairs(pairs, translator.decoding(**overrides))
        return [translation.text for translation in translations]

    texts, other_texts = translate(model), translate(other)
    report, other_report = model.score_texts(texts, pairs), other.score_texts(other_texts, pairs)
    references = [reference_text(model.tokenizer, pair.target) for pair in pairs]
    comparison = compare_texts(texts, other_texts, references, tokenize=scoring_tokenizer(model.config))
    against = {"model": str(other.folder), **other_report.to_json(), "comparison": comparison.to_json()}
    text = f"{report}\n\nagainst {other.folder}\n{other_report}\n\n{comparison}"
    return {**report.to_json(), "against": against}, text
