"""Language models: packing, perplexity, and the whole path from a text file to a continued prompt."""

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead import config as configs
from clearhead.cli.main import main
from clearhead.config import Config, TokenizerConfig
from clearhead.data.batching import PackedDocuments
from clearhead.data.readers.documents import Document
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.native_engine import NativeScoringEngine
from clearhead.engines.torch_forward import TorchScoringEngine
from clearhead.errors import ConfigError, DecodingError
from clearhead.model.parameters import count_parameters
from clearhead.model.registry import build_model
from clearhead.tasks.generated_text import IncrementalDetokenizer
from clearhead.tasks.language_modeling.inference import score_documents, total_target_nll
from clearhead.tasks.language_modeling.training import LanguageModelingTask, total_nll
from clearhead.tasks.registry import get_task
from clearhead.tasks.trainable.records import TrainingFiles, split_end
from tests.runtime.models import native

START, END, PAD = Tokenizer.bos_id, Tokenizer.eos_id, Tokenizer.pad_id
SIZES = (5, 1, 17, 7, 30, 2)
DOCUMENTS = [[100 * number + offset for offset in range(1, size + 1)] for number, size in enumerate(SIZES, 1)]
LOOP = "one two three,\nfour five six.\n"
SHAPE = ["model.num_decoder_layers=2", "model.model_dim=32", "model.feed_forward_dim=64", "model.num_heads=2",
         "model.dropout=0", "training.learning_rate=0.01", "training.warmup=10",
         "training.cooldown=0.3", "training.validate_every=50", "model.positions=rotary"]  # fmt: skip


def sets(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "loop.txt"
    path.write_text(LOOP * 40, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def looped(text: Path) -> Path:
    """Return a model of characters, trained in seconds on the repeated text."""
    torch.set_num_threads(1)
    chosen = ["tokenizer.kind=char", "data.document_unit=file", "data.max_tokens=32", "data.validation_share=0.1",
              "training.batch_tokens=512"]  # fmt: skip
    out = text.parent / "model"
    done = main(["train", "--task", "lm", str(text), "--out", str(out), "--steps", "250", "--threads", "1",
                 *sets(*SHAPE, *chosen)])  # fmt: skip
    assert done == 0
    return out


# Packing


def packed(window: int = 8) -> PackedDocuments:
    return PackedDocuments.build(DOCUMENTS, range(1, len(SIZES) + 1), window, START, END)


@pytest.mark.parametrize("window", [2, 8, 13, 500])
def test_every_token_is_a_target_once_in_each_epoch(window: int) -> None:
    stream = packed(window)
    follows = {a: b for ids in DOCUMENTS for a, b in zip(ids, [*ids[1:], END], strict=True)}
    firsts = {ids[0] for ids in DOCUMENTS}
    expected = sorted([*(token for ids in DOCUMENTS for token in ids), *[END] * len(SIZES)])
    cuts = set()
    for epoch in range(6):
        targets, begins = list[int](), list[int]()
        for indices in stream.plan(24, seed=1, epoch=epoch):
            windows = stream.windows(indices, PAD)
            is_real = windows.documents_NT >= 0
            assert is_real.sum() == stream.lengths(indices).sum()
            assert windows.inputs_NT.shape[0] <= max(1, 24 // window)
            inputs, outputs = windows.inputs_NT[is_real].tolist(), windows.targets_NT[is_real].tolist()
            assert all(b in firsts if a == START else b == follows[a] for a, b in zip(inputs, outputs, strict=True))
            assert (windows.inputs_NT[~is_real] == PAD).all() and (windows.targets_NT[~is_real] == PAD).all()
            numbers = (outputs[index] if outputs[index] != END else a for index, a in enumerate(inputs))
            owners = windows.documents_NT[is_real] % len(SIZES) + 1
            assert [number // 100 for number in numbers] == owners.tolist()
            begins += windows.inputs_NT[:, 0].tolist()
            targets += outputs
        assert sorted(targets) == expected
        cuts.add(tuple(sorted(begins)))
    assert len(cuts) > 1 or window == 500


def test_the_plan_is_a_pure_function_of_seed_and_epoch() -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [indices.tolist() for indices in packed().plan(24, seed, epoch)]

    assert plan(1, 0) == plan(1, 0)
    assert len({str(plan(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_a_document_that_is_repeated_after_its_end_is_another_one() -> None:
    stream = PackedDocuments.build([list(range(10, 23))], [1], 5, START, END)
    last = np.array(
        [3 * len(stream) + len(stream) - 1]
    )  # divided at position 3: the last window continues at the start
    windows = stream.windows(last, PAD)
    assert windows.inputs_NT.tolist() == [[22, START, 10, 11]]
    assert set(windows.documents_NT[0].tolist()) == {0, 1} and not windows.has_single_documents


def test_a_window_is_named_by_the_line_of_its_document() -> None:
    stream = PackedDocuments.build(DOCUMENTS, [10, 20, 30, 40, 50, 60], 6, START, END)
    assert stream.lines_of(np.arange(2)) == [10, 20]  # documents begin at positions 0, 6, 8, ...
    assert stream.lines_of(np.array([2 * len(stream) + 1])) == [30]  # the same window, two positions later


def small(*assignments: str, tokenizer: Tokenizer | None = None) -> tuple[Config, Any]:
    """Return a config of the task and a network with random weights."""
    settings = configs.parse_assignments([*SHAPE, *assignments])
    vocab = tokenizer.vocab_size if tokenizer else 700
    config = configs.build(settings, {"model": {"vocab_size": vocab}}, base=get_task("lm").base)
    torch.manual_seed(3)
    network = build_model(config.model).eval()
    with torch.no_grad():
        network.output.weight.mul_(3.0)
    return config, network


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
def test_packed_documents_have_the_loss_of_separate_ones(positions: str) -> None:
    config, network = small(f"model.positions={positions}", "data.max_tokens=200", "training.batch_tokens=200")
    tokenizer = Tokenizer.train(["abc"], TokenizerConfig(kind="char"))
    stream = PackedDocuments.build(DOCUMENTS, range(6), 200, START, END)
    task = LanguageModelingTask(config, tokenizer, stream, [], [])
    together = task.loss(network, task.batch(task.plan(0)[0], 0))
    alone = 0.0
    for ids in DOCUMENTS:
        logits = network.logits(network(torch.tensor([[START, *ids]])))[0]
        alone += float(torch.nn.functional.cross_entropy(logits, torch.tensor([*ids, END]), reduction="sum").detach())
    assert together.tokens == sum(SIZES) + len(SIZES)
    assert float(together.nll) == pytest.approx(alone, rel=1e-5)
    open_task = LanguageModelingTask(
        configs.override(config, {"data": {"attend_across_documents": True}}), tokenizer, stream, [], []
    )
    assert float(open_task.loss(network, open_task.batch(task.plan(0)[0], 0)).nll) != pytest.approx(alone, rel=1e-3)


# Perplexity


@pytest.mark.parametrize("stride", [3, 6, 7])
@pytest.mark.parametrize("together", [False, True])
def test_sliding_perplexity_equals_that_of_a_loop_over_tokens(stride: int, together: bool) -> None:
    texts = ["the cat sat on the mat and", "a", "on the sand, thé end €"]
    tokenizer = Tokenizer.train(texts[:2], TokenizerConfig(kind="char", normalization="none"))
    window = 7
    config, network = small(
        f"data.max_tokens={window}", f"data.attend_across_documents={together}", tokenizer=tokenizer
    )
    ids = tokenizer.encode_batch(texts)
    stretches = [([START, *each], [*each, END]) for each in ids]
    if together:
        stretches = [([i for each, _ in stretches for i in each], [i for _, each in stretches for i in each])]
    total = 0.0
    for inputs, targets in stretches:
        for index, target in enumerate(targets):
            begin = next(b for b in range(0, len(inputs), stride) if index < b + window)
            logits_V = network.logits(network(torch.tensor([inputs[begin : index + 1]])))[0, -1]
            total -= float(logits_V.double().log_softmax(-1)[target].detach())
    documents = [Document(each, 1) for each in texts]
    report = score_documents(partial(total_nll, network, config), config, tokenizer, documents, ids, stride)
    assert report.nll == pytest.approx(total, rel=1e-5)
    for engine in (TorchScoringEngine(network), NativeScoringEngine(native(network))):
        nll = partial(total_target_nll, engine, pad_id=tokenizer.pad_id)
        by_engine = score_documents(nll, config, tokenizer, documents, ids, stride)
        assert by_engine.nll == pytest.approx(total, rel=1e-5)
    assert report.tokens == sum(map(len, ids)) + 3 and report.unknown == 3  # the comma, é and €
    characters = sum(map(len, texts))
    assert report.bits_per_character == pytest.approx(total / math.log(2) / characters, rel=1e-5)
    assert (report.characters, report.bytes) == (characters, characters + 3)
    assert f"window:7|stride:{stride}|documents:{'together' if together else 'apart'}" in report.signature


def test_the_end_of_a_text_is_held_out() -> None:
    train, valid = split_end([Document("ab cd\n" * 10, 1), Document("xy zw " * 10, 11)], 0.25)
    assert "".join(one.text for one in train) == "ab cd\n" * 10 + "xy zw " * 5
    assert [(one.text, one.line) for one in valid] == [("xy zw " * 5, 11)]
    train, valid = split_end([Document("ab\ncd\nef\ngh", 1)], 0.5)
    assert (train[0].text, valid[0].text, valid[0].line) == ("ab\ncd\n", "ef\ngh", 3)


# Text


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_line_breaks_survive_the_tokenizer(kind: str) -> None:
    config = configs.build({"tokenizer": {"kind": kind, "vocab_size": 400}}, base=get_task("lm").base)
    text = "To be,\nor not  to be:\n\n\tthat is\n"
    tokenizer = Tokenizer.train([text * 3], config.tokenizer)
    for each in (text, text.strip(), "\n" + text):
        assert tokenizer.decode(tokenizer.encode(each).ids) == each


def stream(tokenizer: Tokenizer, prompt: str, text: str, *stops: str) -> list[str]:
    """Return the text that is streamed for each token, and at the end."""
    before, both = tokenizer.encode(prompt).ids, tokenizer.encode(prompt + text).ids
    assert both[: len(before)] == before
    detokenizer = IncrementalDetokenizer(tokenizer, before, stops)
    return [*(detokenizer.add(token) for token in both[len(before) :]), detokenizer.finish()]


def test_only_complete_characters_are_streamed() -> None:
    tokenizer = Tokenizer.train(["a b c"] * 3, TokenizerConfig(vocab_size=300, normalization="none"))
    parts = stream(tokenizer, "a", " b€😀c 字")
    assert "".join(parts) == " b€😀c 字"
    assert parts.count("€") == 1 and parts.count("😀") == 1
    assert "".join(stream(tokenizer, "", "a b")) == "a b"
    incomplete = IncrementalDetokenizer(tokenizer, [], ())
    ids = tokenizer.encode("€").ids
    assert [incomplete.add(token) for token in ids[:-1]] == [""] * (len(ids) - 1) and incomplete.finish() == "\ufffd"


@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (["cab"], "ab"), (["bca"], "a"), (["xyz"], "abcabcaabb"), (["aab"], "abcabc"), (["abb", "bb"], "abcabca"),
        (["a"], ""), (["bbz"], "abcabcaabb"),
    ],
)  # fmt: skip
def test_text_ends_before_a_stop_string_that_spans_tokens(stops: list[str], expected: str) -> None:
    tokenizer = Tokenizer.train(["abc"], TokenizerConfig(kind="char"))
    parts = stream(tokenizer, "", "abcabcaabb", *stops)
    assert "".join(parts) == expected
    assert parts[0] == ("" if stops in (["a"], ["aab"], ["abb", "bb"]) else "a")


# Command line and Python interface


def test_greedy_text_continues_like_the_training_text(looped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(looped), "one two th", "--temperature", "0", "--max-tokens", "80"]) == 0
    assert capsys.readouterr().out == (LOOP * 4)[:90] + "\n"  # 80 tokens: the context of 32 slides
    assert main(["generate", str(looped), "--temperature", "0", "--stop", ",\nfo", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["text"].endswith("three") and record["finish_reason"] == "stop"
    assert record["log_prob"] == pytest.approx(sum(record["token_log_probs"]))


def test_samples_differ_and_seeds_repeat_them(looped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", str(looped), "one", "--temperature", "5", "--max-tokens", "20", "--samples", "2"]
    assert main([*arguments, "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records[0]["text"] != records[1]["text"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "".join(f"--- {n}\none{each['text']}\n" for n, each in enumerate(records, 1))
    assert main([*arguments, "--seed", "1"]) == 0
    assert records[0]["text"] not in capsys.readouterr().out


def test_python_api_streams_what_it_generates(looped: Path) -> None:
    model = clearhead.load(looped)
    for settings in ({"temperature": 3.0, "seed": 4}, {"top_k": 2, "top_p": 0.9}, {"stop": "six"}):
        result = model.generate("one", max_tokens=30, **settings)
        assert "".join(model.stream("one", max_tokens=30, **settings)) == result.text
        assert result.finish_reason in {"length", "stop", "end"} and len(result.tokens) <= 30
    with pytest.raises(ConfigError, match=r"unknown key decoding\.heat"):
        model.generate("one", heat=3)
    with pytest.raises(DecodingError, match="the prompt has 32 tokens, the model accepts 31; shorten it"):
        next(model.stream("o" * 32))
    assert model.generate("o" * 31, max_tokens=3).tokens


def test_evaluate_reports_perplexity_with_its_signature(
    looped: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(looped), str(text), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tokens"] == len(LOOP) * 40  # without the line break at the end, with the end of the document
    assert report["nats"]["score"] < 0.5 < math.log(20)
    assert report["perplexity"]["score"] == pytest.approx(math.exp(report["nats"]["score"]))
    assert "window:32|stride:16" in report["nats"]["signature"]
    assert main(["evaluate", str(looped), str(text)]) == 0
    assert "bits per byte" in capsys.readouterr().out
    assert main(["evaluate", str(looped), str(text), "--json", "--engine", "torch"]) == 0
    assert json.loads(capsys.readouterr().out)["nats"]["score"] == pytest.approx(report["nats"]["score"], rel=1e-5)


def test_many_documents_are_learned_to_their_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    animals = ["cat", "dog", "cow", "hen", "fox", "pig", "owl", "bee", "ant", "elk", "yak", "emu"]
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"The {animal} sat\non the {animal}.\n\n" for animal in animals * 3), encoding="utf-8")
    out = tmp_path / "model"
    chosen = ["tokenizer.vocab_size=360", "data.max_tokens=40", "training.batch_tokens=400"]
    done = main(["train", "--task", "lm", str(path), "--valid", str(path), "--out", str(out), "--steps", "200",
                 "--threads", "1", *sets(*SHAPE, *chosen)])  # fmt: skip
    captured = capsys.readouterr()
    assert done == 0, captured.err
    assert "log_prob -" in captured.out and f"Next: clearhead generate {out}" in captured.out
    result = clearhead.load(out).generate("The pig", temperature=0)
    assert (result.text, result.finish_reason) == (" sat\non the pig.", "end")
    assert len(result.token_log_probs) == len(result.tokens) + 1
    assert "clearhead generate DIR" in (out / "README.md").read_text()


def test_gpt2_has_as_many_parameters_as_the_original() -> None:
    config = configs.build({"model": {"vocab_size": 50257}}, preset="gpt2", base=get_task("lm").base)
    with torch.device("meta"):
        assert count_parameters(build_model(config.model)) == 124_439_808


@pytest.fixture
def paths(looped: Path, text: Path, tmp_path: Path) -> Iterator[dict[str, Path]]:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "blank.txt").write_bytes(b"\n \n")
    yield {"model": looped, "text": text, "out": tmp_path / "out", "in": tmp_path}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--task", "lm", "{in}/empty.txt", "--out", "{out}"], "the file is empty"),
        (["train", "--task", "lm", "{in}/blank.txt", "--out", "{out}"], "found only blank lines"),
        (["train", "--task", "lm", "{in}/none.txt", "--out", "{out}"], "no such file"),
        (["train", "--task", "lm", "{text}", "--out", "{out}", "--set", "model.family=lstm"], "needs model.family=dec"),
        (["train", "--task", "lm", "{text}", "--out", "{out}", "--set", "data.document_unit=page"],
         "data.document_unit=page"),
        (["translate", "{model}"], "cannot translate. Use clearhead generate"),
        (["evaluate", "{model}", "{in}/empty.txt"], "the file is empty"),
        (["generate", "{in}", "one"], "in"),
        (["generate", "{model}", "o" * 40], "the prompt has 40 tokens, the model accepts 31"),
        (["generate", "{model}", "one", "--temperature", "-1"], "decoding.sampling.temperature=-1.0"),
        (["generate", "{model}", "one", "--top-p", "1.5"], "decoding.sampling.top_p=1.5"),
        (["generate", "{model}", "one", "--stop", ""], "got an empty one"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_exit_2(
    arguments: list[str], message: str, paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([word.format(**paths) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err and len(captured.err.splitlines()) == 1, captured.err


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_bytes(b"w")
    config = configs.build({"data": {"document_unit": "file"}}, base=get_task("lm").base)
    with pytest.raises(clearhead.ClearheadError, match="expected at least 100 characters of text"):
        get_task("lm").load_records(TrainingFiles([tmp_path / "word.txt"]), config, lambda _: None)


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--help"]) == 0
    assert "Example: clearhead generate" in capsys.readouterr().out
