"""`clearhead score`: how probable a model finds given translations."""

from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import (
    ColumnsOption,
    ComputeType,
    EngineName,
    Folder,
    Json,
    PairFiles,
    Settings,
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
    per_token: Annotated[bool, typer.Option("--per-token", help="The mean of a token instead of the sum.")] = False,
    columns: ColumnsOption = "",
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    as_json: Json = False,
    settings: Settings = [],  # noqa: B006
    threads: Threads = 0,
) -> None:
    """Print the log-probability of each given translation under a model, one line a pair.

    With --json each pair gives one object: the sum, what search would rank it by, and every token's share. A pair that
    is skipped gives an empty line; with --json it is said why.

    Example: clearhead score runs/de test.tsv
    """
    from clearhead.api import load
    from clearhead.cli.pairs import answer_pairs
    from clearhead.data.readers.tables import TableOptions
    from clearhead.errors import ConfigError, TaskError
    from clearhead.tasks.registry import get_task

    if per_token and as_json:
        raise ConfigError("--per-token changes the plain lines, and --json has every token; leave one of them out")
    if settings and not as_json:
        raise ConfigError("--set changes what search would rank by, which only --json prints; add --json")
    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    if model.config.task != "translate":
        fitting = get_task(model.config.task).verb
        problem = f"{folder} was trained for the task {model.config.task}: it cannot score translations"
        raise TaskError(f"{problem}. Use clearhead {fitting} {folder}")
    model = model.with_table(table_settings([], columns))
    decoding = model.decoding(verb="score", **decoding_settings(settings, None))

    def plain(found: "ScoredOutput") -> str:
        return f"{found.log_prob / len(found.token_log_probs) if per_token else found.log_prob:.4f}"

    table = TableOptions.from_config(model.config.data)
    answer_pairs(files, table, lambda pairs: model.score(pairs, decoding, files[0]), plain, as_json)
