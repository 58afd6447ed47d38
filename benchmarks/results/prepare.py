"""Preparation of the data sets of docs/results.md: original files to files for `clearhead train`."""

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Files:
    """Training, validation and (named) test files of an experiment."""

    train: Sequence[Path]
    valid: Sequence[Path]
    tests: dict[str, Sequence[Path]]


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a gzipped text."""
    with gzip.open(path, "rt", encoding=encoding, newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def write(path: Path, rows: Iterable[str]) -> Path:
    """Write rows as lines of a new file and return its path."""
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def hold_out(rows: Sequence[str], step: int) -> tuple[list[str], list[str]]:
    """Return (train, valid) rows; every `step`-th distinct row is held out for validation."""
    held_out = set(sorted(set(rows))[::step])
    return [row for row in rows if row not in held_out], [row for row in rows if row in held_out]


def multi30k(data: Path, out: Path) -> Files:
    """Return the files of the image captions, raw text, English to German."""
    folder = data / "multi30k"

    def sides(name: str) -> list[Path]:
        return [folder / f"{name}.{language}.gz" for language in ("en", "de")]

    return Files(sides("train"), sides("val"), {"test_2016_flickr": sides("test_2016_flickr")})


def multi30k_bpe(data: Path, out: Path) -> Files:
    """Return the files of the same captions as published: lower-cased, tokenised, BPE."""
    folder = data / "multi30k-bpe10k"

    def sides(name: str) -> list[Path]:
        return [folder / f"{name}.{language}.gz" for language in ("en", "de")]

    return Files(sides("train"), sides("valid"), {"test.2016": sides("test.2016")})


def sst2(data: Path, out: Path) -> Files:
    """Return sentences of film reviews; 5 % of the training sentences are for validation, dev is the test set."""
    train, valid = hold_out(lines(data / "sst2" / "train.tsv.gz"), 20)
    files = [write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)]
    return Files(*files, {"dev": [data / "sst2" / "dev.tsv.gz"]})


def trec(data: Path, out: Path) -> Files:
    """Return questions with six classes of expected answers."""

    def rows(name: str) -> list[str]:
        split = (line.split(" ", 1) for line in lines(data / "trec" / name, "latin-1"))
        return [f"{text}\t{label.split(':')[0]}" for label, text in split]

    train, valid = hold_out(rows("train_5500.label.gz"), 20)
    test = write(out / "test.tsv", rows("TREC_10.label.gz"))
    return Files([write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)], {"test": [test]})


def masakhaner(data: Path, out: Path) -> Files:
    """Return Swahili news with named entities; 5 % of the training sentences for validation, dev for the test."""
    sentences = "\n".join(lines(data / "masakhaner-swa" / "train.txt.gz")).split("\n\n")
    train, valid = hold_out([sentence.strip("\n") for sentence in sentences if sentence.strip()], 20)
    files = [write(out / "train.conll", ("\n\n".join(train),))], [write(out / "valid.conll", ("\n\n".join(valid),))]
    return Files(*files, {"dev": [data / "masakhaner-swa" / "dev.txt.gz"]})


def shakespeare(data: Path, out: Path) -> Files:
    """Return the plays as one text: first 85 % training, next 5 % validation, last 10 % test."""
    with gzip.open(data / "text" / "shakespeare.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        text = file.read()
    ends = [0, int(0.85 * len(text)), int(0.9 * len(text)), len(text)]
    names = ["train.txt", "valid.txt", "test.txt"]
    for name, start, end in zip(names, ends, ends[1:], strict=False):
        (out / name).write_text(text[start:end], encoding="utf-8")
    return Files([out / "train.txt"], [out / "valid.txt"], {"last tenth": [out / "test.txt"]})


def scan(split: str, data: Path, out: Path) -> Files:
    """Return commands with their actions; 2 % of the training commands are for validation."""

    def rows(part: str) -> list[str]:
        commands = lines(data / "scan" / f"tasks_{part}_{split}.txt.gz")
        return ["\t".join(row.removeprefix("IN: ").split(" OUT: ")) for row in commands]

    train, valid = hold_out(rows("train"), 50)
    test = write(out / "test.tsv", rows("test"))
    return Files([write(out / "train.tsv", train)], [write(out / "valid.tsv", valid)], {"test": [test]})


def digits(data: Path, out: Path) -> Files:
    """Return scikit-learn's digits, 8x8: every fifth image is for the test, a part of the others for validation."""
    from clearhead.data.readers.images import write_digits

    whole = out / "all"
    if not whole.exists():
        write_digits(whole)
    for number, image in enumerate(sorted(whole.glob("*/*.png"))):
        target = out / ("test" if number % 5 == 0 else "train") / image.parent.name / image.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(image.read_bytes())
    return Files([out / "train"], [], {"every fifth": [out / "test"]})
