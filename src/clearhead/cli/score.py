"""`clearhead score`: log-probabilities of given translations."""

from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import (
    ColumnsOption,
    ComputeType,
    DecodingSettings,
    EngineName,
    Folder,
    Json,
    PairFiles,
    Tag,
    Threads,
    decoding_settings,
    table_settings,
    use_threads,
)

if TYPE_CHECKING:
    from clearhead.tasks.scoring import ScoredOutput

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def score(
    folder: Folder,
    files: PairFiles,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Print the average per token instead of the sum.")
    ] = False,
    columns: ColumnsOption = "",
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: DecodingSettings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Print the log-probability of each given translation under a model, one line per pair.

    With --json each pair gives one object with the sum, the normalised score that ranks hypotheses in beam search, and
    the log-probability of every token. A skipped pair gives an empty line; --json states the reason.

    Example: clearhead score runs/de test.tsv
    """
    from clearhead.api import load
    from clearhead.cli.pairs import answer_pairs
    from clearhead.data.readers.tables import TableOptions
    from clearhead.errors import ConfigError, TaskError
    from clearhead.tasks.registry import get_task

    if per_token and as_json:
        raise ConfigError("--per-token has no effect with --json, which prints every token; leave one of them out")
    if settings and not as_json:
        raise ConfigError("--set changes the search score, which only --json prints; add --json")
    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    if model.config.task != "translate":
        problem = f"{folder} was trained for the task {model.config.task}: it cannot score translations"
        raise TaskError(f"{problem}. Use clearhead {get_task(model.config.task).verb} {folder}")
    model = model.with_table(table_settings([], columns))
    decoding = model.decoding(verb="score", **decoding_settings(settings, None))

    def to_text(output: "ScoredOutput") -> str:
        return f"{output.log_prob / len(output.token_log_probs) if per_token else output.log_prob:.4f}"

    table = TableOptions.from_config(model.config.data)
    answer_pairs(files, table, lambda pairs: model.score(pairs, decoding, files[0]), to_text, as_json)
