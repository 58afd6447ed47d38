"""`clearhead demo`: train a translator on the built-in corpus, evaluate it and show translations and attention."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Threads, use_threads

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.grammar import Example
    from clearhead.inspection.analyses.word_attention import WordAttention
    from clearhead.training.checkpoint.finalize import TrainingResult

app = typer.Typer(rich_markup_mode=None, add_completion=False)

HELD_OUT = 500
# Sentences with more than 25 words are 2 % of the default mix but 10 % of the scored words: models trained on the mix
# alone reached 48 BLEU on them and 98 on sentences of up to 14 words (docs/results.md).
LONG_SHARE = 0.08
LONG_DISTANCE = (12, 60)
SHOWN_WORDS = 9  # of the sentence whose attention is shown: it fits into a terminal
SHADES = " ░▒▓█"
# The grammar has one correct translation per sentence and an unlimited number of sentences, so neither dropout nor
# label smoothing helps. Rotary positions reached a higher BLEU in fewer updates than sinusoids, in one run each
# (docs/results.md).
SETTINGS = {
    "model": {"num_encoder_layers": 3, "num_decoder_layers": 3, "dropout": 0.0, "positions": "rotary"},
    "tokenizer": {"vocab_size": 3000},
    "data": {"languages": "en:de"},
    "training": {
        "batch_tokens": 1024,
        "learning_rate": 0.004,
        "warmup": 300,
        "cooldown": 0.6,
        "label_smoothing": 0.0,
        "validate_lines": 500,
    },
}


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the model.")] = Path("runs/demo"),
    pairs: Annotated[int, typer.Option("--pairs", min=1000, help="Number of training pairs.")] = 80_000,
    minutes: Annotated[float, typer.Option("--minutes", min=0.05, help="Training time.")] = 3.5,
    again: Annotated[
        bool, typer.Option("--again", help="Train again even if --out contains a finished model.")
    ] = False,
    threads: Threads = 0,
) -> int:
    """Train a translator on the built-in corpus, evaluate it, and show translations and attention.

    Example: clearhead demo
    """
    from clearhead import bundle
    from clearhead.api import load

    use_threads(threads)
    state = bundle.read_manifest(out).training.get("state") if bundle.exists(out) else None
    if state is not None and (again or state != "finished"):
        print(
            f"{out} contains a model whose training is {state}; it is replaced at the first validation of the new run."
        )
    if state == "finished" and not again:
        print(f"{out} contains a finished model, so training is skipped (clearhead demo --again trains it again).")
    else:
        result = _train(out, pairs, minutes, threads)
        if result.outcome.signal:
            print(f"interrupted; the best model so far is in {out}", file=sys.stderr)
            return 128 + signal.Signals(result.outcome.signal)
    _show(load(out))
    return 0


def _train(out: Path, pairs: int, minutes: float, threads: int) -> "TrainingResult":
    from clearhead.cli.data import write_grammar
    from clearhead.cli.training_display import training_display
    from clearhead.config import merge
    from clearhead.training import run

    data = out.with_name(f"{out.name}-data")
    data.mkdir(parents=True, exist_ok=True)
    print(
        f"writing {pairs:,} sentence pairs of the built-in grammar and additional long ones to {data}", file=sys.stderr
    )
    write_grammar(data / "train.tsv", pairs, 1, "train")
    write_grammar(data / "train-long.tsv", int(pairs * LONG_SHARE), 2, "train", LONG_DISTANCE)
    write_grammar(data / "valid.tsv", HELD_OUT, 1, "valid")
    write_grammar(data / "test.tsv", HELD_OUT, 1, "test")
    settings = merge(SETTINGS, {"training": {"minutes": minutes}})
    request = run.TrainRequest(
        [data / "train.tsv", data / "train-long.tsv"], out, [data / "valid.tsv"], "tiny", settings, True, threads
    )
    with training_display() as callback:
        return run.train(request, callback)


def _show(model: "Model") -> None:
    """Print scores on held-out sentences, some translations, one alignment and the next commands."""
    from clearhead import grammar
    from clearhead.data.readers.pairs import Pair

    examples = list(grammar.generate(HELD_OUT, 1, "test"))
    report = model.evaluate([Pair(example.source, example.target, line) for line, example in enumerate(examples, 1)])
    print(f"\n{HELD_OUT} held-out sentences:")
    print(report.bleu)
    print(report.chrf)
    print(f"exact match {100 * report.exact_match:.1f} %")
    print("\nFive sentences never seen in training:")
    for example in examples[:5]:
        print(f"  {example.source}\n  → {model.translate(example.source).text}\n")
    _show_alignment(model, examples)
    print(f"\nModel saved to {model.folder}. Next:")
    print(
        f"  echo 'The animal did not cross the street because it was too tired.' | clearhead translate {model.folder}"
    )
    print(f"  clearhead evaluate {model.folder} {model.folder.with_name(model.folder.name + '-data')}/test.tsv")
    print(f"  clearhead info {model.folder}")


def _show_alignment(model: "Model", examples: "Sequence[Example]") -> None:
    """Print the attention of one sentence in the layer with the lowest alignment error rate."""
    from clearhead.evaluation.alignment import alignment_error_rate

    measured = examples[:100]
    attentions = [model.attention(example.source, example.target) for example in measured]
    layers = range(model.config.model.num_decoder_layers)
    rates = {
        layer: sum(
            alignment_error_rate(attention.links(layer), frozenset(example.alignment))
            for attention, example in zip(attentions, measured, strict=True)
        )
        / len(measured)
        for layer in layers
    }
    layer = min(rates, key=rates.__getitem__)
    shown = min(attentions, key=lambda attention: abs(len(attention.source_words) - SHOWN_WORDS))
    print(
        f"Source word that each German word attends to (decoder layer {layer}, counted from 0; mean of its heads;\n"
        f"alignment error rate {rates[layer]:.2f} against the grammar's gold on {len(measured)} sentences):\n"
    )
    print(draw(shown, layer))


def draw(attention: "WordAttention", layer: int) -> str:
    """Return attention as text: rows are target words, columns source words; darker cells have more attention."""
    weights_JI = attention.weights_LHJI[layer].mean(0)
    height = max(map(len, attention.source_words))
    margin = max(map(len, attention.target_words))
    head = [
        " " * margin + " " + "".join(f" {word.rjust(height)[row]} " for word in attention.source_words)
        for row in range(height)
    ]
    body = [
        f"{word:>{margin}} " + "".join(SHADES[min(4, int(weight * 5))] * 3 for weight in row)
        for word, row in zip(attention.target_words, weights_JI, strict=True)
    ]
    return "\n".join([*head, *body])
