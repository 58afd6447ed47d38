"""Decoding benchmark on small models: engines generate the same tokens, and the tables show the measured values."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks.contestants.translators import KINDS, Server
from benchmarks.decoding import __main__ as decoding
from benchmarks.decoding import models, translation
from benchmarks.decoding.page import render
from benchmarks.decoding.quality import log_prob_difference
from benchmarks.decoding.translation import Cell, target_of

from clearhead.grammar import generate

SENTENCES = 40
SMALL = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.model_dim": 24,
         "model.feed_forward_dim": 40, "model.num_heads": 3, "training.learning_rate": 0.003}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with sentences of the grammar in the files of Multi30k."""
    pairs = [*generate(200 + SENTENCES, 1, "train")]
    for split, split_pairs in (("train", pairs[:200]), ("val", pairs[200:]), ("test_2016_flickr", pairs[200:])):
        for side, field in (("en", "source"), ("de", "target")):
            text = "".join(f"{getattr(pair, field)}\n" for pair in split_pairs)
            (tmp_path / f"{split}.{side}").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def trained(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a small model, trained for a few updates, with the name tiny."""
    settings = {**SMALL, "tokenizer.vocab_size": 400}
    monkeypatch.setattr(models, "SHAPES", {"tiny": {**settings, "training.epochs": 5}})
    out = tmp_path / "out"
    out.mkdir()
    models.to_ctranslate2(models.translator("tiny", data, out))
    return out


def test_all_engines_generate_the_same_tokens(trained: Path, data: Path) -> None:
    outputs: dict[str, list[Any]] = {}
    for kind in KINDS:
        server = Server()
        server.open(kind, str(trained / "models" / "tiny"), str(data / "val.en"), "float32")
        server.configure({"threads": 1, "inter_threads": 1, "intra_threads": 1, "batch_type": "examples",
                          "max_batch_size": 7, "max_length": 11})  # fmt: skip
        outputs[kind] = []
        for beam in (1, 4):
            found = server.outputs(beam)["outputs"]
            counted = server.translate(beam, every=1, is_single=False)
            assert (counted["sentences"], counted["tokens"]) == (SENTENCES, sum(len(ids) + 1 for ids in found))
            single = server.translate(beam, every=13, is_single=True)
            assert (single["sentences"], single["tokens"]) == (4, sum(len(ids) + 1 for ids in found[::13]))
            outputs[kind].append(found)
            file = server.translate_file(beam, str(trained / f"{kind}.txt"))
            assert file["tokens"] == sum(map(len, found))
        assert len((trained / f"{kind}.txt").read_text(encoding="utf-8").splitlines()) == SENTENCES
    assert outputs["native"] == outputs["torch"] == outputs["ctranslate2"]


def test_targets_depend_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("tiny", "float32", False, 4)
    for name, target in (("AMD, family 26 model 2", 2.0), ("AMD, family 25 model 17", 1.7), ("Intel", 2.0)):
        monkeypatch.setattr(translation, "cpu_name", lambda name=name: name)
        assert target_of(cell) == target


def test_a_new_measurement_replaces_the_row_of_the_same_name() -> None:
    old = {"agreement": [{"shape": "tiny", "beam": 1, "sentences": 3}, {"shape": "tiny", "beam": 4, "sentences": 3}]}
    new = {"agreement": [{"shape": "tiny", "beam": 4, "sentences": 5}]}
    assert decoding.merge(old, new)["agreement"] == [old["agreement"][0], new["agreement"][0]]
    assert decoding.merge([{"name": "a", "x": 1}, {"name": "b"}], [{"name": "a", "x": 2}]) == [
        {"name": "b"}, {"name": "a", "x": 2},
    ]  # fmt: skip


def test_the_tables_have_medians_ratios_targets_and_near_ties() -> None:
    times = {"native": [1.0, 4.0, 2.0], "ctranslate2": [4.0, 4.0, 8.0]}
    results = {kind: [{"tokens": 800, "seconds": s} for s in taken] for kind, taken in times.items()}
    rows = [{"name": f"tiny, target {target}", "results": results, "setting": "2 x 1 threads", "target": target}
            for target in (1.9, 2.1)]  # fmt: skip
    others = dict.fromkeys(("native", "ctranslate2", "onnxruntime", "transformers"), results["native"])
    differing = [{"source": "s", "native": "a", "torch": "b", "margin": margin} for margin in (3e-6, 3e-2)]
    differences = {
        "tiny": {"tokens": 12_345, "largest": 1.1e-4, "of_tolerance": 0.97},
        "small": {"tokens": 7, "largest": 2e-4, "of_tolerance": 1.3},
    }
    memory = {"shape": "wide", "beam": 4, "weights": 2**27, "cache": 2**26, "loaded": 2**27, "after": 3 * 2**26}
    shown = render(
        {
            "date": "today", "machine": {"cores": 2, "cpu": "c, family 26", "processor": "p", "instructions": "i",
                                         "torch": "t", "python": "3"},
            "is_quick": True, "plan": {"rounds": 3}, "ctranslate2": "4", "isa": "avx2", "translation": rows,
            "interface": {"tokens": 13, "native": 20.0, "ctranslate2": 50.0},
            "other_models": [{"name": "gpt", "results": others, "settings": {"onnxruntime": "batch 8"}}],
            "quality": {
                "agreement": [
                    {"shape": shape, "beam": 1, "sentences": 1000, "differing": differing, "log_probs": log_probs}
                    for shape, log_probs in differences.items()
                ],
                "int8": [{"shape": "tiny", "beam": 1, "float32": 30.0, "int8": 29.9}],
                "memory": [memory],
            },
        }
    )  # fmt: skip
    assert "the numbers are meaningless" in shown and "family 26" in shown and "avx2" in shown
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if "| tiny" in line]
    assert cells == [
        ["tiny, target 1.9", "reached", "400", "200", "2.00", "1.00..4.00", "1.9", "2 x 1 threads"],
        ["tiny, target 2.1", "missed", "400", "200", "2.00", "1.00..4.00", "2.1", "2 x 1 threads"],
    ]
    assert "998 of 1000 sentences (least: 998); 1 of 2 differing ones are near-ties" in shown
    assert (
        "- reached: tiny, beam 1: log-probabilities of 12,345 tokens of equal translations differ by at most 1.1e-04 "
        "(97% of 0.0001 + 1e-05 |x|)" in shown
    )
    assert "- missed: small, beam 1: log-probabilities of 7 tokens" in shown
    assert "loses 0.10" in shown and "1.00 times both" in shown and "50 microseconds" in shown


def test_log_probabilities_are_compared_where_translations_are_equal() -> None:
    @dataclass
    class Output:
        text: str
        tokens: tuple[int, ...]
        token_log_probs: tuple[float, ...]

    native = [
        Output("a b", (4, 5), (-1.0, -2.0, -30.0)),
        Output("c", (6,), (-1.0, -9.0)),
        Output("d", (7,), (-1.0, -1.0)),
    ]
    torch = [Output("a b", (4, 5), (-1.0, -2.0001, -30.0002)), Output("e", (8,), (-9.0, -1.0)), native[2]]
    found = log_prob_difference(native, torch)
    assert found["tokens"] == 5
    assert found["largest"] == pytest.approx(2e-4)
    assert found["of_tolerance"] == pytest.approx(1e-4 / (1e-4 + 1e-5 * 2.0001))  # not 2e-4 / 4e-4
    assert log_prob_difference(native[1:2], torch[1:2]) == {"tokens": 0, "largest": 0.0, "of_tolerance": 0.0}


@pytest.mark.slow
def test_a_quick_run_from_end_to_end(trained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(data), "--out", str(trained), "--quick", "--shapes", "tiny", "--cores", "1"]
    sections = ["translation", "files", "interface", "shortlist", "quality"]
    decoding.main([*arguments, "--sections", *sections])
    out = capsys.readouterr().out
    for name in ("float32, whole set, beam 1", "int8, one by one, 1 thread, beam 4", "text file to text file",
                 "shortlist of 50", "the same text as the torch engine",
                 "tokens of equal translations differ", "upper bound"):  # fmt: skip
        assert name in out
    [record] = trained.glob("*-quick.json")
    decoding.main([*arguments, "--sections", "avx2", "--into", str(record)])
    last = max(trained.glob("*-quick.json"))  # named after the minute: another file if that has changed
    names = [row["name"] for row in json.loads(last.read_text())["translation"]]
    assert len(names) == len({*names}) == 8 + 2 + 1 + 4
