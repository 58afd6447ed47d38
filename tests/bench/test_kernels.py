"""Benchmark of the kernels: counted operations, shares of the roofline, its tables and the one in docs/runtime.md."""

import os
import re
import shutil
from pathlib import Path

import pytest
from benchmarks import kernels
from benchmarks.kernels import COMMAND, SECTION, SHAPES, Measurements, Run, Shape, Stage
from benchmarks.report import read_section

PAGE = Path(__file__).parents[2] / "docs" / "runtime.md"
NAMES = [*kernels.stage_sizes(SHAPES["tiny"], 10, 14)]
NAMES.insert(2, "quantize")

needs_compiler = pytest.mark.skipif(
    not shutil.which(os.environ.get("CXX", "g++")) and not os.environ.get("CI"), reason="no C++ compiler here"
)


def cells(table: str) -> dict[str, list[str]]:
    """Return the cells of a Markdown table by their first column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture
def measured() -> Measurements:
    """Return runs with 2 microseconds per stage and none for quantization.

    The vocabulary product takes 8 microseconds with one row and 20 with 24 rows.
    """
    runs = []
    for rows, last in ((1, 8e-6), (24, 20e-6)):
        stages = [Stage(name, 2e-6 * (name != "quantize"), 0, 0) for name in NAMES]
        stages[-2] = Stage("vocabulary product", last, rows * 768_000, 3_000_000)
        runs.append(Run("tiny", "float32", rows, 7, 1.5e12, last + 30e-6, stages))
    runs += [Run("tiny", "int8", run.rows, 5, 1e12, run.whole, run.stages) for run in runs]
    return Measurements("avx2", 10, 14, {"float32": 2.5e12, "int8": 5e12}, 25e9, runs)


def test_a_product_is_bound_by_its_weights_or_by_its_multiply_adds(measured: Measurements) -> None:
    text = kernels.page_table(measured, SHAPES["tiny"], kernels.Overheads(0.0042, 0.000123))
    assert "preparing the weights takes 4.2 ms, encoding a source of 14 tokens 123 µs." in text
    table = cells(text)
    assert [*table][2:] == [name for name in NAMES if name != "quantize"] + ["not explained", "whole step"]
    # 3 MB at 1.5 TB/s are 2 of 8 microseconds; 24 x 768,000 products at 2.5 per picosecond are 7.4 of 20.
    assert table["vocabulary product"] == [
        "`matmul.h`", "n x 128 x 6,000", "3.0 MB", "8.0", "21.1%", "25% (weights)", "20.0", "40.0%", "37% (products)",
    ]  # fmt: skip
    assert table["not explained"] == ["", "", "", "8.0", "21.1%", "", "8.0", "16.0%", ""]
    assert table["whole step"] == ["", "", "3.0 MB", "38.0", "100.0%", "", "50.0", "100.0%", ""]


def test_tables_have_speeds_and_mark_a_quick_run(measured: Measurements) -> None:
    text = kernels.render(measured, is_quick=True)
    assert "the numbers are meaningless" in text and "the numbers are meaningless" not in kernels.render(measured)
    float_part, int8_part = text.split("**tiny, int8**")
    assert cells(float_part)["vocabulary product"] == [
        "768,000", "3.0 MB", "8.0", "21.1%", "192", "25%", "20.0", "40.0%", "1,843", "37%",
    ]  # fmt: skip
    assert "GOP/s" in int8_part.splitlines()[2] and cells(int8_part)["norm"][2:6] == ["2.0", "5.3%", "", ""]


def test_the_heading_names_the_processor(measured: Measurements) -> None:
    info = "vendor_id\t: X\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: A CPU @ 2.50GHz\n"
    assert kernels.processor(info) == "A CPU @ 2.50GHz (family 6, model 85)"
    assert kernels.processor("") == "unknown CPU"
    assert "instruction set avx2" in kernels.heading(measured) and "5000 GFLOP/s" in kernels.heading(measured)


def test_the_page_has_the_table_of_this_benchmark() -> None:
    section = read_section(PAGE.read_text(encoding="utf-8"), SECTION, COMMAND)
    assert section is not None
    rows = {name: row for name, row in cells(section).items() if name in NAMES}
    assert {name: row[1] for name, row in rows.items()} == kernels.stage_sizes(SHAPES["tiny"], 10, 14)
    native = Path(__file__).parents[2] / "src" / "clearhead" / "runtime" / "native"
    assert all((native / row[0].strip("`")).exists() for row in rows.values())


def test_the_largest_batch_is_that_of_a_thread() -> None:
    source = Path(__file__).parents[2] / "src" / "clearhead" / "runtime" / "native" / "search.cpp"
    found = re.search(r"constexpr int kRows = (\d+);", source.read_text(encoding="utf-8"))
    assert found is not None and int(found[1]) == kernels.ROWS[-1]
    assert f"n = {kernels.ROWS[-1]} is {kernels.ROWS[-1] // 4} sentences with\nbeam 4" in PAGE.read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
@needs_compiler
def test_a_quick_run_counts_every_product(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kernels.build()
    monkeypatch.setenv("CLEARHEAD_ISA", "generic")
    # 3 heads of 11 are padded to 16, and 33, 71 and 131 columns to panels of 32: inputs count with their padding.
    measured = kernels.measure([Shape("odd", 33, 71, 3, 2, 131)], 0)
    assert measured.isa == "generic" and min(*measured.peaks.values(), measured.memory) > 0
    assert [(run.type, run.rows) for run in measured.runs] == [
        (kind, n) for kind in kernels.TYPES for n in kernels.ROWS
    ]
    products = {
        "query, key, value product": 2 * 64 * 3 * 48, "output product": 2 * 64 * 33,
        "cross-attention query product": 2 * 64 * 48, "cross-attention output product": 2 * 64 * 33,
        "feed-forward": 2 * (64 * 71 + 96 * 33), "vocabulary product": 64 * 131,
    }  # fmt: skip
    for run in measured.runs:
        assert {stage.name: stage.multiply_adds for stage in run.stages if stage.multiply_adds} == {
            name: run.rows * count for name, count in products.items()
        }
        assert [stage.name for stage in run.stages] == NAMES and run.bandwidth > 0 and run.whole > 0
        assert [stage.name for stage in run.stages if not stage.seconds] == (
            ["quantize"] if run.type == "float32" else []
        )
        output = next(stage for stage in run.stages if stage.name == "vocabulary product")
        assert output.bytes == 64 * 160 * (4 if run.type == "float32" else 1)
    kernels.main(["--quick", "--shapes", "tiny"])
    assert "instruction set generic" in capsys.readouterr().out
    monkeypatch.setenv("CLEARHEAD_ISA", "none")
    with pytest.raises(SystemExit, match="cannot run instruction set 'none'"):
        kernels.measure([SHAPES["tiny"]], 0)
