"""Scores of model 001.35 of the package detransliterator (fairseq): `python -m benchmarks.detransliterator FOLDER`.

FOLDER is the unpacked wheel of detransliterator 0.0.2, which includes the test text. The decoding settings, such as
beam size 5, are those of the checkpoint.
"""

import argparse
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import clearhead
from benchmarks.harness.record import require_core
from clearhead.data.readers.pairs import Pair
from clearhead.evaluation.metrics import bleu, chrf
from clearhead.interop.importer import ImportSource, import_checkpoint

MODEL = Path("latin2nqo_001.35") / "checkpoints" / "checkpoint_best.pt"
TEXT = Path("test_data") / "diane_parallel_002"
SIDES = ("bam-g-tonal", "nqo")


def main() -> None:
    """Import the model, transliterate every line and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked wheel")
    parser.add_argument("--lines", type=int, help="number of lines (default: all)")
    parser.add_argument("--engine", default="torch")
    arguments = parser.parse_args()
    require_core()
    assets = arguments.folder / "detransliterator" / "assets"
    pairs = read_pairs(assets)[: arguments.lines]
    with TemporaryDirectory() as folder:
        import_checkpoint(ImportSource(assets / MODEL), Path(folder) / "nko")
        model = clearhead.load(Path(folder) / "nko")
        began = time.perf_counter()
        outputs = model.translate_many([pair.source for pair in pairs], engine=arguments.engine)
        texts = [output.text for output in outputs]
        print(f"{arguments.engine}, beam {model.config.decoding.beam_size}, {time.perf_counter() - began:.0f} s")
    print("\n".join(scores(texts, pairs)))


def read_pairs(assets: Path) -> list[Pair]:
    """Return the pairs of non-empty lines; Latin lines are lower-cased as in the package, without CSV quotes."""
    sides = [(assets / f"{TEXT}.{side}").read_text(encoding="utf-8").split("\n") for side in SIDES]
    clean = [(latin.strip().strip('"').strip().lower(), nko.strip()) for latin, nko in zip(*sides, strict=True)]
    return [Pair(latin, nko, line) for line, (latin, nko) in enumerate(clean, 1) if latin and nko]


def letters_of(text: str) -> str:
    """Return only the letters and marks of a line, since the references number verses with Latin digits."""
    return "".join(char for char in text if unicodedata.category(char)[0] in "LM")


def scores(texts: Sequence[str], pairs: Sequence[Pair]) -> list[str]:
    """Return exact matches, lines with all letters correct, and scores with signatures."""
    references = [pair.target for pair in pairs]
    exact = sum(text == reference for text, reference in zip(texts, references, strict=True))
    same_letters = sum(
        letters_of(text) == letters_of(reference) for text, reference in zip(texts, references, strict=True)
    )
    shares = [f"{name} {count:,} of {len(pairs):,} ({100 * count / len(pairs):.2f} %)"
              for name, count in (("exact match", exact), ("all letters correct", same_letters))]  # fmt: skip
    return [*shares, str(bleu(texts, references)), str(chrf(texts, references))]


if __name__ == "__main__":
    main()
