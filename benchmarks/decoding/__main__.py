"""Speed and agreement of the native engine: `make bench-decoding DATA=<folder of Multi30k>`.

Sections, which can be measured individually (`--sections`) and added to an existing record (`--into`):
translation  native engine and CTranslate2 on trained models: tiny, small and 512 wide, float32 and int8
avx2         the same in float32, with both restricted to AVX2
files        from text file to text file
interface    overhead of the interfaces, with a model of minimal size
shortlist    native engine with and without a shortlist
others       GPT-2's shape and MiniLM: CTranslate2, onnxruntime and transformers
quality      agreement with the torch engine, BLEU of int8, memory

No other program may run on the machine. Models are trained first, in about 50 minutes, and reused later.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.decoding import quality
from benchmarks.decoding.models import SHAPES, interface_model, minilm, read_lines, to_ctranslate2, translator
from benchmarks.decoding.other_models import measure_gpt, measure_minilm
from benchmarks.decoding.page import render
from benchmarks.decoding.translation import (
    AVX2,
    AVX2_TARGET,
    FILE_TARGETS,
    QUICK,
    Plan,
    Translation,
    cells,
    target_of,
)
from benchmarks.harness.record import Record, create_parser
from clearhead.api import load
from clearhead.runtime.availability import instruction_set

SECTIONS = ("translation", "avx2", "files", "interface", "shortlist", "others", "quality")
SHORTLIST_PER_TOKEN = 50
AGREEMENT_SENTENCES = 1000
BEAMS = (1, 4)

Row = dict[str, Any]


class Benchmark:
    """One run: text, models, and the rows of the record."""

    def __init__(self, options: argparse.Namespace, plan: Plan) -> None:
        self.out: Path = options.out
        self.data: Path = options.data
        self.shapes: list[str] = options.shapes
        self.compute_types: list[str] = options.compute_types
        self.plan, self.cores = plan, options.cores
        self.size = 64 if options.quick else AGREEMENT_SENTENCES
        self.lines = self._write("lines.txt", read_lines(self.data, "val.en"))

    def _write(self, name: str, lines: Iterable[str]) -> Path:
        path = self.out / name
        path.write_text("".join(f"{line}\n" for line in lines if line.strip()), encoding="utf-8")
        return path

    def _translation(self, shape: str, compute_type: str) -> Translation:
        bundle = translator(shape, self.data, self.out)
        to_ctranslate2(bundle)
        plan = self.plan
        if shape == "wide":  # 20 times slower per sentence than tiny
            plan = dataclasses.replace(plan, every=3 * plan.every, every_single=3 * plan.every_single)
        return Translation(bundle, self.lines, compute_type, plan, self.cores)

    def translation(self) -> Iterator[list[Row]]:
        """Measure all cells of the table, grouped by shape and compute type."""
        for shape in self.shapes:
            for compute_type in self.compute_types:
                measured = self._translation(shape, compute_type)
                table_cells = [*cells(shape, compute_type)]
                measured.run({}, "", table_cells, {cell: target_of(cell) for cell in table_cells})
                yield measured.rows

    def avx2(self) -> Iterator[list[Row]]:
        """Measure tiny in float32 with both engines restricted to AVX2."""
        measured = self._translation("tiny", "float32")
        table_cells = [*cells("tiny", "float32")]
        measured.run(AVX2, ", AVX2", table_cells, dict.fromkeys(table_cells, AVX2_TARGET))
        yield measured.rows

    def files(self) -> Iterator[list[Row]]:
        """Measure from text file to text file."""
        for shape, target in FILE_TARGETS.items():
            if shape in self.shapes:
                measured = self._translation(shape, "float32")
                measured.run_files([*BEAMS], target)
                yield measured.rows

    def interface(self) -> Iterator[Row]:
        """Measure a model of minimal size, to compare the overhead of the interfaces."""
        bundle = interface_model(self.out, load(translator("tiny", self.data, self.out)).tokenizer)
        to_ctranslate2(bundle)
        yield Translation(bundle, self.lines, "float32", self.plan, self.cores).run_interface()

    def shortlist(self) -> Iterator[list[Row]]:
        """Measure the native engine with a shortlist of 50 target tokens per source token."""
        from clearhead.cli.main import main as clearhead_command

        bundle = translator("tiny", self.data, self.out)
        path = self.out / "models" / "tiny-shortlist.safetensors"
        if not path.exists():
            text = self.out / "text"
            command = ["shortlist", str(bundle), str(text / "train.en"), str(text / "train.de"),
                       "--best", str(SHORTLIST_PER_TOKEN), "--out", str(path)]  # fmt: skip
            if clearhead_command(command):
                raise SystemExit("building the shortlist failed")
        yield [self._translation("tiny", "float32").run_shortlist(path, 4)]

    def others(self) -> Iterator[list[Row]]:
        """Measure GPT-2's shape and MiniLM."""
        theirs, ours = minilm(self.out)
        texts = self._write("sentences.txt", read_lines(self.data, "train.en")[: self.size])
        yield [measure_minilm(ours, theirs, texts, self.plan.rounds, self.cores)]
        for batch in (1, 16):
            yield [measure_gpt(self.out, batch, self.plan.rounds, self.cores)]

    def quality(self) -> Iterator[dict[str, list[Row]]]:
        """Compare native with torch, int8 with float32, and memory with the size of weights and cache."""
        sources, references = (read_lines(self.data, f"test_2016_flickr.{side}")[: self.size] for side in ("en", "de"))
        for shape in self.shapes:
            bundle = translator(shape, self.data, self.out)
            for beam in BEAMS:
                yield {"agreement": [quality.agreement(bundle, sources, beam)]}
                yield {"int8": [quality.int8_quality(bundle, sources, references, beam)]}
                if shape == "wide":
                    yield {"memory": [quality.memory(bundle, self.lines, beam, self.cores)]}


def merge(old: Any, new: Any) -> Any:
    """Return the rows of an earlier record, with rows of the same name replaced by new ones."""
    if isinstance(new, dict) and not all(isinstance(rows, list) for rows in new.values()):
        return new
    if isinstance(new, dict):
        return {**old, **{name: merge(old.get(name, []), rows) for name, rows in new.items()}}
    keys = {_key(row) for row in new}
    return [*(row for row in old if _key(row) not in keys), *new]


def _key(row: Row) -> Any:
    return row.get("name") or (row["shape"], row["beam"])


def parse(arguments: Iterable[str]) -> argparse.Namespace:
    parser = create_parser("decoding", (__doc__ or "").splitlines()[0], out="decoding")
    parser.add_argument("--shapes", nargs="+", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--compute-types", nargs="+", default=["float32", "int8"], choices=["float32", "int8"])
    parser.add_argument("--sections", nargs="+", default=[*SECTIONS], choices=SECTIONS)
    parser.add_argument("--into", type=Path, help="existing record (.json) to which rows are added or replaced")
    return parser.parse_args([*arguments])


def main(arguments: Iterable[str]) -> None:
    """Measure the sections and write the record after each measurement."""
    import ctranslate2  # type: ignore[import-untyped]

    options = parse(arguments)
    plan = QUICK if options.quick else Plan()
    plan = dataclasses.replace(plan, rounds=options.rounds or plan.rounds)
    record = Record("decoding", options, plan)
    benchmark = Benchmark(options, plan)
    results: dict[str, Any] = {"translation": [], "other_models": [], "interface": {}, "quality": {}}
    if options.into:
        earlier = json.loads(options.into.read_text())
        results = {name: earlier[name] for name in results}
    keys = {"others": "other_models", "interface": "interface", "quality": "quality"}
    saved: dict[str, Any] = {}
    for section in options.sections:
        measure: Callable[[], Iterator[Any]] = getattr(benchmark, section)
        key = keys.get(section, "translation")
        for rows in measure():
            results[key] = merge(results[key], rows)
            saved = record.save(ctranslate2=ctranslate2.__version__, isa=instruction_set(), **results)
    print(render(saved))


if __name__ == "__main__":
    main(sys.argv[1:])
