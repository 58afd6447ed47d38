"""Benchmark of training on small models: contestants compute the same, and the table shows the measured values."""

import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks import train
from benchmarks.contestants.clearhead import Clearhead
from benchmarks.contestants.torch_nn import TorchTransformer
from benchmarks.harness.protocol import Contestant, Data, Pairs, Setting, Start, Task
from benchmarks.report import render_record
from benchmarks.train import SHAPES, RemainingTime, parameters, resample_ids, task_for

from clearhead.grammar import generate
from clearhead.training.distributed.thread_data_parallel import torch_threads

TASK = Task(vocab_size=61, num_layers=2, model_dim=12, inner_dim=20, num_heads=3, batch_tokens=64, max_positions=32)
PAIRS = Pairs([[5, 17, 29, 3], [7, 3]], [[11, 3], [60, 13, 4, 3]])


def build(kind: type[Contestant], task: Task = TASK) -> Contestant:
    return kind(Start(task, Setting(threads=1), 0, ""))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_clearhead_and_torch_are_the_same_model(norm: str) -> None:
    task = Task(**{**TASK.__dict__, "norm": norm})
    with torch_threads(1):
        ours, theirs = build(Clearhead, task), build(TorchTransformer, task)
    assert isinstance(ours, Clearhead) and isinstance(theirs, TorchTransformer)
    # torch has a norm on top of each stack in either case; ours has one where layers are pre-norm
    assert theirs.parameters() - ours.parameters() == (0 if norm == "pre" else 2 * 2 * TASK.model_dim)
    if norm == "pre":
        copy_weights(ours, theirs)
        assert ours.loss(PAIRS) == pytest.approx(theirs.loss(PAIRS), rel=1e-5)


def copy_weights(ours: Clearhead, theirs: TorchTransformer) -> None:
    """Copy weights to torch's layers, which have the same parts under different names."""
    names = {
        "self_attention.": "self_attn.", "cross_attention.": "multihead_attn.", "output.": "out_proj.",
        "feed_forward.w1.": "linear1.", "feed_forward.w2.": "linear2.", "self_attention_residual.norm.": "norm1.",
    }  # fmt: skip
    our_weights = ours.model.state_dict()
    their_weights = theirs.module.model.state_dict()
    for name in their_weights:
        source = name.removeprefix("stacks.")
        if name == "embedding.weight":
            source = "target_embedding.tokens.weight"
        is_decoder = source.startswith("decoder")
        for old, new in names.items():
            source = source.replace(new, old)
        source = source.replace("norm3.", "feed_forward_residual.norm.")
        source = source.replace(
            "norm2.", "cross_attention_residual.norm." if is_decoder else "feed_forward_residual.norm."
        )
        if "in_proj_" in source:  # torch concatenates queries, keys and values
            parts = [source.replace("in_proj_", f"{part}.") for part in ("query", "key", "value")]
            their_weights[name] = torch.cat([our_weights[part] for part in parts])
        else:
            their_weights[name] = our_weights[source]
    theirs.module.model.load_state_dict(their_weights)


@pytest.mark.parametrize("kind", [Clearhead, TorchTransformer])
def test_contestants_learn_over_several_calls(kind: type[Contestant]) -> None:
    with torch_threads(1):
        contestant = build(kind)
        losses = [contestant.loss(PAIRS)]
        for _ in range(2):
            contestant.train(contestant.prepare([PAIRS] * 25))
            losses.append(contestant.loss(PAIRS))
    assert losses[0] > losses[1] > losses[2]
    if isinstance(contestant, Clearhead):
        assert contestant.trainer.state.step == 50 and contestant.trainer.state.tokens == 50 * PAIRS.target_tokens


def test_shapes_are_those_of_the_presets() -> None:
    small = task_for("small", 6000, 4096)
    assert (small.num_layers, small.model_dim, small.inner_dim, small.num_heads) == (3, 256, 1024, 4)
    assert (small.norm, small.dropout) == ("pre", 0.1)
    assert task_for("paper-base", 37000, 4096).norm == "post"
    assert parameters(task_for("paper-base", 37000, 4096)) == 63_082_496  # the number in docs/scale.md


def test_resampled_ids_keep_lengths_and_end_tokens() -> None:
    data = Data([Pairs([[9, 8, 7, 3]] * 300, [[6, 3]] * 300)], Pairs([], []), 10)
    drawn = resample_ids(data, 37000, seed=1)
    (pairs,) = drawn.train
    assert {len(row) for row in pairs.source} == {4} and {len(row) for row in pairs.target} == {2}
    assert all(row[-1] == 3 and min(row[:-1]) >= 4 and max(row) < 37000 for row in pairs.source + pairs.target)
    counts = Counter(token for row in pairs.source for token in row[:-1])
    assert counts.most_common(1)[0][0] == 4 and counts[4] > 1.4 * counts[5] and len(counts) > 200
    assert drawn == resample_ids(data, 37000, seed=1)


def test_remaining_time_is_corrected_by_elapsed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 30.0, 50.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    left = RemainingTime(40.0)
    assert left.after(10.0) == 90.0 and left.after(10.0) == 50.0


def test_the_table_has_ratio_share_and_memory() -> None:
    times = {"clearhead": [1.0, 4.0, 2.0], "EOLE": [4.0, 4.0, 8.0]}
    host = {"cores": 2, "processor": "p", "instructions": "i", "torch": "t", "python": "3"}
    runs = {
        name: [{"tokens": 800, "seconds": seconds, "bytes": 3e9 + seconds} for seconds in taken]
        for name, taken in times.items()
    }
    shown = render_record(
        {
            "benchmark": "train", "date": "today", "machine": host, "is_quick": True,
            "plan": {"rounds": 3, "steps": [12, 6, 2]}, "peaks": [9e9, 1e10],
            "tasks": {"small": task_for("small", 6000, 4096).__dict__},
            "contestants": [{"name": name, "version": "1", "notes": "n", "setting": "2 threads"} for name in times],
            "results": {"small": runs}, "parameters": {"small": dict.fromkeys(times, 1_000_000)},
        }
    )  # fmt: skip
    assert "the numbers are meaningless" in shown and "6 updates" in shown and "peak 10 GFLOP/s" in shown
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if "small  " in line]
    assert rows == [
        ["small", "clearhead", "400", "200..800", "", "24 %", "3,000", "2 threads"],
        ["small", "EOLE", "200", "100..200", "2.00", "12 %", "3,000", "2 threads"],
    ]


@pytest.mark.slow
def test_a_quick_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [*generate(400, 1, "train")]
    for name in ("train.en", "train.de", "val.en", "val.de"):
        side = "source" if name.endswith("en") else "target"
        (tmp_path / name).write_text("".join(f"{getattr(pair, side)}\n" for pair in pairs), encoding="utf-8")
    threads = torch.get_num_threads()
    train.main(["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--quick", "--shapes", "tiny", "small",
                "--contestants", "clearhead", "torch_nn", "--cores", "2"])  # fmt: skip
    torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert out.count("| torch.nn.Transformer, 2 processes ") == 2 and SHAPES[2] not in out
