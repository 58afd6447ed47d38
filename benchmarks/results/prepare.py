"""The data sets of docs/results.md as files that `clearhead train` reads. Made from the originals."""

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    """What one entry trains, validates and tests on. A test set has a name."""

    train: Sequence[Path]
    valid: Sequence[Path]
    tests: dict[str, Sequence[Path]]


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a gzipped text."""
    with gzip.open(path, "rt", encoding=encoding, newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def write(path: Path, rows: Iterable[str]) -> Path:
    """Rows as lines of a new file."""
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def every(rows: Sequence[str], step: int) -> tuple[list[str], list[str]]:
    """(train, valid): every `step`-th distinct row is held out, so that test sets stay unseen until the end."""
    held = set(sorted(set(rows))[::step])
    return [row for row in rows if row not in held], [row for row in rows if row in held]


def multi30k(data: Path, out: Path) -> Files:
    """Image captions, raw text, English to German."""
    folder = data / "multi30k"

    def sides(name: str) -> list[Path]:
        return [folder / f"{name}.{language}.gz" for language in ("en", "de")]

    return Files(sides("train"), sides("val"), {"test_2016_flickr": sides("test_2016_flickr")})


def multi30k_bpe(data: Path, out: Path) -> Files:
    """The same captions lower-cased, tokenised and cut by BPE, as published."""
    folder = data / "multi30k-bpe10k"

    def sides(name: str) -> list[Path]:
        return [folder / f"{name}.{language}.gz" for language in ("en", "de")]

    return Files(sides("train"), sides("valid"), {"test.2016": sides("test.2016")})


def sst2(data: Path, out: Path) -> Files:
    """Sentences of film reviews. A twentieth of the training sentences chooses the weights; dev is the test."""
    train, valid = every(lines(data / "sst2" / "train.tsv.gz"), 20)
    files = [write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)]
    return Files(*files, {"dev": [data / "sst2" / "dev.tsv.gz"]})


def trec(data: Path, out: Path) -> Files:
    """Questions and the six kinds of answer that they ask for."""

    def rows(name: str) -> list[str]:
        split = (line.split(" ", 1) for line in lines(data / "trec" / name, "latin-1"))
        return [f"{text}\t{label.split(':')[0]}" for label, text in split]

    train, valid = every(rows("train_5500.label.gz"), 20)
    test = write(out / "test.tsv", rows("TREC_10.label.gz"))
    return Files([write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)], {"test": [test]})


def masakhaner(data: Path, out: Path) -> Files:
    """Swahili news with names. A twentieth of the training sentences chooses the weights; dev is the test."""
    sentences = "\n".join(lines(data / "masakhaner-swa" / "train.txt.gz")).split("\n\n")
    train, valid = every([sentence.strip("\n") for sentence in sentences if sentence.strip()], 20)
    files = [write(out / "train.conll", ("\n\n".join(train),))], [write(out / "valid.conll", ("\n\n".join(valid),))]
    return Files(*files, {"dev": [data / "masakhaner-swa" / "dev.txt.gz"]})


def shakespeare(data: Path, out: Path) -> Files:
    """All plays as one text: the first 85 % train, the next 5 % choose the weights, the last 10 % are the test."""
    with gzip.open(data / "text" / "shakespeare.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        text = file.read()
    ends = [0, int(0.85 * len(text)), int(0.9 * len(text)), len(text)]
    names = ["train.txt", "valid.txt", "test.txt"]
    for name, start, end in zip(names, ends, ends[1:], strict=False):
        (out / name).write_text(text[start:end], encoding="utf-8")
    return Files([out / "train.txt"], [out / "valid.txt"], {"last tenth": [out / "test.txt"]})


def scan(split: str, data: Path, out: Path) -> Files:
    """Commands and the actions that they mean. A fiftieth of the training commands chooses the weights."""

    def rows(part: str) -> list[str]:
        found = lines(data / "scan" / f"tasks_{part}_{split}.txt.gz")
        return ["\t".join(row.removeprefix("IN: ").split(" OUT: ")) for row in found]

    train, valid = every(rows("train"), 50)
    test = write(out / "test.tsv", rows("test"))
    return Files([write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)], {"test": [test]})


def digits(data: Path, out: Path) -> Files:
    """scikit-learn's digits, 8x8: every fifth picture is the test; of the others a part chooses the weights."""
    from clearhead.data.readers.images import write_digits

    whole = out / "all"
    if not whole.exists():
        write_digits(whole)
    for number, picture in enumerate(sorted(whole.glob("*/*.png"))):
        target = out / ("test" if number % 5 == 0 else "train") / picture.parent.name / picture.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture.read_bytes())
    return Files([out / "train"], [], {"every fifth": [out / "test"]})
