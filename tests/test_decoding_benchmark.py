"""The benchmark of translation, in miniature: everybody writes as much as was asked, and the table says it right."""

from pathlib import Path

import pytest
from benchmarks import decoding, endless
from benchmarks.contestants import translators
from benchmarks.contestants.translators import KINDS, OUTPUT_TOKENS, Server
from benchmarks.decoding import Benchmark, Measure, Plan, render

from clearhead.data.grammar import generate


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sentences of the grammar in the files of Multi30k."""
    pairs = [*generate(200, 1, "train")]
    for name, side in (("train.en", "source"), ("train.de", "target"), ("val.en", "source")):
        (tmp_path / name).write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    return tmp_path


@pytest.fixture
def prepared(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    small = {"num_encoder_layers": 1, "num_decoder_layers": 1, "model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}
    monkeypatch.setitem(endless.SHAPES, "tiny", ("tiny", small))
    monkeypatch.setattr(decoding, "VOCAB_SIZE", 400)
    benchmark = Benchmark(tmp_path, Plan(), cores=2)
    benchmark.prepare(data, ["tiny"])
    return benchmark


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_writes_so_many_pieces_and_no_more(kind: str, prepared: Benchmark) -> None:
    server, setting = Server(), {"processes": 2, "threads": 1, "batch": 3}
    server.open(kind, str(prepared.out / "tiny.bundle"), str(prepared.lines), setting, rank=1)
    for beam in (1, 4):
        for is_single in (False, True):
            answer = server.translate(beam, every=20, batch=3, is_single=is_single)
            assert answer == {"sentences": 5, "tokens": 5 * OUTPUT_TOKENS}


def test_peers_with_a_choice_try_it_out(tmp_path: Path) -> None:
    benchmark, whole, single = Benchmark(tmp_path, Plan(), 2), Measure("tiny", 4, False), Measure("tiny", 4, True)
    for kind, processes in (("Hugging Face Marian", 1), (decoding.DIVIDED, 2)):
        assert [each.processes for each in benchmark.options(kind, whole)] == [processes] * len(decoding.BATCHES)
    assert decoding.contestants(whole, translators.KINDS) == [*translators.KINDS]
    assert decoding.DIVIDED not in decoding.contestants(single, translators.KINDS)
    for kind in translators.KINDS:
        assert [setting.threads for setting in benchmark.options(kind, single)] == [1]


def test_the_table_has_medians_spread_and_ratios() -> None:
    times = {"clearhead torch": [1.0, 4.0, 2.0], "Hugging Face Marian": [4.0, 4.0, 8.0]}
    name = str(Measure("tiny", 1, False))
    host = {"cores": 2, "processor": "p", "instructions": "i", "torch": "t", "python": "3"}
    shown = render(
        {
            "date": "today", "machine": host, "is_quick": True, "plan": {"rounds": 3}, "contestants": [*times],
            "settings": {name: dict.fromkeys(times, "2 threads")},
            "results": {name: {kind: [{"tokens": 800, "seconds": s} for s in taken] for kind, taken in times.items()}},
        }
    )  # fmt: skip
    assert "the numbers mean nothing" in shown
    [row] = [line for line in shown.splitlines() if "clearhead torch" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["tiny, whole set, beam 1", "clearhead torch", "400", "200..800", "2.00", "2 threads"]


@pytest.mark.slow
def test_a_quick_run_from_end_to_end(prepared: Benchmark, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ["clearhead torch", "plain ctranslate2"]
    decoding.main(["--data", str(data), "--out", str(prepared.out), "--quick", "--shapes", "tiny", "--beams", "4",
                   "--contestants", *kinds, "--cores", "1"])  # fmt: skip
    out = capsys.readouterr().out
    assert all(f"| {kind} " in out for kind in kinds) and "tiny, one by one, beam 4" in out
