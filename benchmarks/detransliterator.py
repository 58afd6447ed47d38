"""`python -m benchmarks.detransliterator FOLDER`: model 001.35 of that package (fairseq) on the text in the package.

FOLDER is the unpacked wheel of detransliterator 0.0.2. Beam 5 and the other settings come from the checkpoint.
"""

import argparse
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import clearhead
from benchmarks.core import require_core
from clearhead.data.readers.pairs import Pair
from clearhead.evaluation.metrics import bleu, chrf
from clearhead.interop.importer import ImportSource, import_checkpoint

MODEL = Path("latin2nqo_001.35") / "checkpoints" / "checkpoint_best.pt"
TEXT = Path("test_data") / "diane_parallel_002"
SIDES = ("bam-g-tonal", "nqo")


def main() -> None:
    """Imports, writes every line, and prints the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the unpacked wheel")
    parser.add_argument("--lines", type=int, help="only the first ones; all if left out")
    parser.add_argument("--engine", default="torch")
    arguments = parser.parse_args()
    require_core()
    assets = arguments.folder / "detransliterator" / "assets"
    found = read_pairs(assets)[: arguments.lines]
    with TemporaryDirectory() as folder:
        import_checkpoint(ImportSource(assets / MODEL), Path(folder) / "nko")
        model = clearhead.load(Path(folder) / "nko")
        began = time.perf_counter()
        texts = [one.text for one in model.translate_many([pair.source for pair in found], engine=arguments.engine)]
        print(f"{arguments.engine}, beam {model.config.decoding.beam_size}, {time.perf_counter() - began:.0f} s")
    print("\n".join(scores(texts, found)))


def read_pairs(assets: Path) -> list[Pair]:
    """The lines that both sides have, the Latin ones lower-cased as the package does and without the quotes of CSV."""
    sides = [(assets / f"{TEXT}.{side}").read_text(encoding="utf-8").split("\n") for side in SIDES]
    clean = [(latin.strip().strip('"').strip().lower(), nko.strip()) for latin, nko in zip(*sides, strict=True)]
    return [Pair(latin, nko, line) for line, (latin, nko) in enumerate(clean, 1) if latin and nko]


def letters(text: str) -> str:
    """A line without what its numbering and punctuation differ in: the references number verses with Latin digits."""
    return "".join(char for char in text if unicodedata.category(char)[0] in "LM")


def scores(texts: Sequence[str], pairs: Sequence[Pair]) -> list[str]:
    """Whole lines, lines with all letters right, and scores with signatures."""
    references = [pair.target for pair in pairs]
    whole = sum(text == reference for text, reference in zip(texts, references, strict=True))
    right = sum(letters(text) == letters(reference) for text, reference in zip(texts, references, strict=True))
    shares = [f"{name} {count:,} of {len(pairs):,} ({100 * count / len(pairs):.2f} %)"
              for name, count in (("exact match", whole), ("all letters right", right))]  # fmt: skip
    return [*shares, str(bleu(texts, references)), str(chrf(texts, references))]


if __name__ == "__main__":
    main()
