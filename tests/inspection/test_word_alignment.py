"""Word alignments of batches, compared with traces of single pairs, for every family with cross-attention."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearhead
from clearhead.cli.main import main
from clearhead.data.readers.pairs import AlignedPair, Pair
from clearhead.engines import torch_forward
from clearhead.errors import ClearheadError, DataError
from clearhead.inspection.analyses.word_alignment import choose_head, default_head
from clearhead.inspection.analyses.word_attention import rank_heads_by_alignment, word_attention
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.tasks import scoring
from tests.cli.test_inspect import saved
from tests.inspection.small_models import TEXT_MODELS, small_model
from tests.tasks.artificial_text import artificial_text
from tests.trained_model import Trained

CROSS_ATTENTION_MODELS = [
    name for name, (task, _) in TEXT_MODELS.items() if task == "translate" and name != "gru without attention"
]
SOURCES = [*artificial_text(9), "Look!", "The dog, the old dog, eats."]
PAIRS = [
    Pair(source, target, line)
    for line, (source, target) in enumerate(zip(SOURCES, SOURCES[3:] + SOURCES[:3], strict=True), 1)
]


@pytest.mark.parametrize("name", CROSS_ATTENTION_MODELS)
def test_a_batch_aligns_as_a_trace_of_each_pair_does(name: str) -> None:
    """The pairs have different lengths, with padding on both sides; every head and every layer mean is compared."""
    model = small_model(name)
    traced = [word_attention(model.trace(pair.source, pair.target)) for pair in PAIRS]
    num_layers, num_heads = traced[0].weights_LHJI.shape[:2]
    for layer in range(num_layers):
        for head in (*range(num_heads), None):
            alignments = list(model.align(PAIRS, HeadRef("cross", layer, head)))
            for alignment, attention in zip(alignments, traced, strict=True):
                assert alignment.links == attention.links(layer, head)
                assert alignment.source_words == tuple(attention.source_words)
                assert alignment.target_words == tuple(attention.target_words)
    gold = [attention.links(num_layers - 1, 0) for attention in traced]
    chosen = choose_head(model, [AlignedPair(*aligned) for aligned in zip(PAIRS, gold, strict=True)], "gold")
    best = rank_heads_by_alignment(traced, gold)[0]
    assert (chosen.head_ref, chosen.error_rate) == (best.head_ref, best.error_rate) and chosen.error_rate == 0


@given(st.permutations(range(len(PAIRS))), st.integers(1, len(PAIRS)))
@settings(max_examples=8, deadline=None)
def test_alignments_do_not_depend_on_the_batch(order: list[int], count: int) -> None:
    model = small_model("post-norm, rotary")
    alignments = model.align([PAIRS[index] for index in order[:count]])
    for index, alignment in zip(order, alignments, strict=False):
        assert [alignment] == list(model.align([PAIRS[index]]))


def test_pairs_keep_their_order_with_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low limits on the pairs per call and the numbers per batch make every batch small."""
    model = small_model("transformer")
    expected = list(model.align(PAIRS)), model.score(PAIRS)
    monkeypatch.setattr(scoring, "PAIRS_PER_CALL", 4)
    monkeypatch.setattr(torch_forward, "MAX_NUMBERS", 1)
    assert list(model.align(PAIRS)) == expected[0]
    for score, expected_score in zip(model.score(PAIRS), expected[1], strict=True):
        assert score.token_log_probs == pytest.approx(expected_score.token_log_probs, abs=1e-4)


@pytest.mark.parametrize(("name", "layer"), [("lstm, dot", 0), ("lstm, additive", 0), ("transformer", 0)])
def test_the_default_head_exists(name: str, layer: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recurrent decoders have one cross-attention, whatever their number of layers (two here)."""
    model = small_model(name)
    assert model.config.model.num_decoder_layers == 2
    assert default_head(model) == HeadRef("cross", layer)
    (tmp_path / "pairs.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    assert main(["align", str(saved(name, tmp_path / "model")), str(tmp_path / "pairs.tsv"), "--threads", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == f"cross.{layer} (default head; --gold FILE.jsonl chooses the best one)"
    assert captured.out.splitlines() == [alignment.pharaoh for alignment in model.align(PAIRS, HeadRef("cross", layer))]


def test_a_model_without_attention_aligns_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund\n")
    folder = saved("gru without attention", tmp_path / "model")
    for options in ([], ["--layer", "0"]):
        assert main(["align", str(folder), str(tmp_path / "pairs.tsv"), *options]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and "no attention between source and target" in captured.err


def test_errors_name_the_line_of_a_pair() -> None:
    model = small_model("transformer")
    for pair, message in (
        (Pair("a " * 99, "b", 7), r"^x\.tsv:7: \d+ tokens, the model accepts 63; split the line"),
        (Pair(" ", "b", 8), r"^x\.tsv:8: a side has no tokens"),
    ):
        with pytest.raises(DataError, match=message):
            model.align([*PAIRS, pair], path="x.tsv")
    with pytest.raises(ClearheadError, match="expected a layer from 0 to 1 and a head from 0 to 1, got cross"):
        model.align(PAIRS, HeadRef("cross", 2))


@pytest.mark.parametrize("verb", ["align", "score"])
def test_skipped_pairs_keep_their_lines(
    verb: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line n of the output belongs to line n of the file; for a skipped pair it is empty, or has the reason in JSON."""
    rows = ["The dog sleeps.\tDer Hund schläft.", "\tnichts", "A child laughs.\tEin Kind lacht.", "",
            f"{'x' * 2001}\tlang", "The king sees.\tDer König sieht.", "The cat.\tDie Katze."]  # fmt: skip
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    assert main([verb, str(trained.folder), str(path), "--threads", "1"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.split("\n")[:-1]
    assert [index for index, line in enumerate(lines) if not line] == [1, 3, 4] and len(lines) == len(rows)
    assert "skipped empty line: 1" in captured.err and f"({path}:2)" in captured.err
    assert main([verb, str(trained.folder), str(path), "--threads", "1", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["line"] for record in records] == [*range(1, 8)]
    assert [record.get("skipped") for record in records] == [
        None, "empty source", None, "empty line", "source longer than 2000 characters", None, None,
    ]  # fmt: skip
    model, valid_rows = clearhead.load(trained.folder), [0, 2, 5, 6]
    sides = {index: rows[index].split("\t") for index in valid_rows}
    pairs = [Pair(source, target, index + 1) for index, (source, target) in sides.items()]
    if verb == "align":
        assert [lines[index] for index in valid_rows] == [alignment.pharaoh for alignment in model.align(pairs)]
    else:
        assert [float(lines[index]) for index in valid_rows] == pytest.approx(
            [score.log_prob for score in model.score(pairs)], abs=1e-4
        )
