"""Trainings on cached corpora, with tags and with BPE dropout: the same as in memory, and exact when resumed."""

from pathlib import Path

import numpy as np
import pytest

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.data.corpus import cached_corpus, encoding
from clearhead.data.readers.pairs import Pair
from clearhead.errors import ClearheadError, ConfigError, TaskError, TokenizerError
from clearhead.tasks.language_modeling.training import LanguageModelingTask
from clearhead.tasks.trainable import records
from clearhead.tasks.translation import training
from clearhead.tasks.translation.training import TranslationTask
from clearhead.training.run import PreparedRun, TrainRequest, prepare, train
from tests.tasks.artificial_text import artificial_text, write_lines
from tests.training.runs import RecordingCallback, Settings, model_of, run, settings_of, traces, write_data

pytestmark = pytest.mark.forks
BPE: Settings = {"tokenizer": {"kind": "bpe", "vocab_size": 320}}
DROPOUT: Settings = {**BPE, "data": {"bpe_dropout": 0.3}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every corpus as large, in one process."""
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setattr(encoding, "available_cores", lambda: 1)
    for task in ("translation", "language_modeling"):
        monkeypatch.setattr(f"clearhead.tasks.{task}.training.RELEASE_INTERVAL", 5)


def prepared(data: list[Path], out: Path, more: Settings | None = None) -> PreparedRun:
    settings = settings_of("translate", more)
    return prepare(TrainRequest(data, out, settings=settings, threads=1), RecordingCallback())


def test_a_corpus_on_disk_trains_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    first, second = write_data("translate", tmp_path / "a"), write_data("translate", tmp_path / "b", count=37)
    weighted, more = [Path(f"{first}:0.5"), Path(f"{second}:2")], {"data": {"max_tokens": 11, "deduplicate": True}}
    run("translate", weighted, tmp_path / "memory", more=more)
    assert not cache.exists()
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setattr(encoding, "available_cores", lambda: 1)
    run("translate", weighted, tmp_path / "disk", more=more)
    assert len(list(cache.rglob("columns.json"))) == 2
    assert model_of(tmp_path / "disk") == model_of(tmp_path / "memory")
    assert traces(tmp_path / "disk") == traces(tmp_path / "memory")
    facts = [read_manifest(tmp_path / name).data for name in ("memory", "disk")]
    assert facts[0] == facts[1] and facts[0]["skipped"]


@pytest.mark.usefixtures("on_disk")
def test_a_cached_corpus_resumes_exactly_and_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_data("translate", tmp_path)
    run("translate", data, tmp_path / "whole")
    callback = RecordingCallback(7)
    run("translate", data, tmp_path / "parts", callback)
    assert [text for text in callback.messages if text.startswith("token ids cached in")]
    monkeypatch.setattr(cached_corpus, "read_pairs", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(encoding, "_encode_blocks", lambda *_: pytest.fail("made again"))
    run("translate", data, tmp_path / "parts", resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")


@pytest.mark.parametrize("task", ["lm", "mlm", "denoise"])
def test_text_on_disk_trains_the_same_model_and_resumes_exactly(
    task: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, more = write_data(task, tmp_path), {"data": {"document_unit": "line"}}
    run(task, data, tmp_path / "memory", more=more)
    request.getfixturevalue("on_disk")
    run(task, data, tmp_path / "disk", more=more)
    assert model_of(tmp_path / "disk") == model_of(tmp_path / "memory")
    assert traces(tmp_path / "disk") == traces(tmp_path / "memory")
    facts = [read_manifest(tmp_path / name).data for name in ("memory", "disk")]
    assert facts[0] == facts[1]
    run(task, data, tmp_path / "parts", RecordingCallback(7), more=more)
    monkeypatch.setattr(cached_corpus, "read_documents", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr(encoding, "_encode_blocks", lambda *_: pytest.fail("made again"))
    run(task, data, tmp_path / "parts", more=more, resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "disk")


@pytest.mark.usefixtures("on_disk")
def test_ids_of_a_large_text_are_memory_mapped(tmp_path: Path, cache: Path) -> None:
    data, callback = write_data("lm", tmp_path), RecordingCallback()
    started = prepare(
        TrainRequest([data], tmp_path / "out", settings=settings_of("lm"), task="lm", threads=1), callback
    )
    assert (
        len(list(cache.rglob("columns.json"))) == 2
        and f"token ids cached in {cache}/clearhead/corpora" in callback.messages
    )
    assert isinstance(started.task, LanguageModelingTask) and isinstance(started.task.train.inputs.ids.base, np.memmap)


@pytest.mark.usefixtures("on_disk")
def test_the_end_of_few_large_documents_is_held_out(tmp_path: Path) -> None:
    data, callback = write_data("lm", tmp_path), RecordingCallback()
    settings = settings_of("lm", {"data": {"document_unit": "file"}})
    prepare(TrainRequest([data], tmp_path / "out", settings=settings, task="lm", threads=1), callback)
    assert "to validate, the last 20 % of the text (data.validation_share)" in callback.messages


def test_a_vocabulary_is_learned_from_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setattr(training, "TOKENIZER_PAIRS", 5)
    data, callback = write_data("translate", tmp_path), RecordingCallback()
    prepare(TrainRequest([data], tmp_path / "out", settings=settings_of("translate"), threads=1), callback)
    assert "the tokenizer is trained on 5 of them" in callback.messages
    monkeypatch.setattr(records, "TOKENIZER_DOCUMENTS", 7)
    text = write_data("lm", tmp_path / "text")
    prepare(TrainRequest([text], tmp_path / "out", settings=settings_of("lm"), task="lm", threads=1), callback)
    assert "the tokenizer is trained on 7 of them" in callback.messages


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_bpe_dropout_resumes_exactly(storage: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if storage == "disk":
        request.getfixturevalue("on_disk")
    data = [Path(f"{write_data('translate', tmp_path)}@de")]
    run("translate", data, tmp_path / "whole", more=DROPOUT)
    for stop_at in (5, 8):
        run("translate", data, tmp_path / "parts", RecordingCallback(stop_at), more=DROPOUT, resume=True)
    with pytest.raises(ConfigError, match=r"data\.bpe_dropout was 0\.3, is 0\.1"):
        run("translate", data, tmp_path / "parts", more={**BPE, "data": {"bpe_dropout": 0.1}}, resume=True)
    run("translate", data, tmp_path / "parts", more=DROPOUT, resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


def test_bpe_dropout_segments_each_pair_differently_but_not_in_validation(tmp_path: Path) -> None:
    data = [Path(f"{write_data('translate', tmp_path)}@de")]
    plain, cut = prepared(data, tmp_path / "x", BPE).task, prepared(data, tmp_path / "x", DROPOUT).task
    assert isinstance(cut, TranslationTask) and isinstance(plain, TranslationTask)
    indices = np.arange(9)
    tokenizer = cut.tokenizer
    before = plain.batch(indices, 0)
    rows = {epoch: cut.batch(indices, epoch).src.tolist() for epoch in (0, 1)}
    assert rows[0] == cut.batch(indices, 0).src.tolist() and rows[0] != rows[1]
    assert rows[0] != before.src.tolist()
    alone = [cut.batch(np.array([index]), 0).src[0].tolist() for index in indices]  # the same in any batch
    assert [[token for token in row if token] for row in rows[0]] == alone
    for row, expected in zip(rows[0], before.src.tolist(), strict=True):
        assert tokenizer.decode(row) == tokenizer.decode(expected) and row[0] == expected[0] == tokenizer.tag_id("de")
    targets = cut.batch(indices, 0).tgt_out_NT.tolist()
    assert targets != before.tgt_out_NT.tolist()
    assert tokenizer.decode_batch(targets) == tokenizer.decode_batch(before.tgt_out_NT.tolist())
    assert cut.valid.source.ids.tolist() == plain.valid.source.ids.tolist()
    assert cut.plan(0)[0].tolist() == plain.plan(0)[0].tolist() and cut.tokens(indices) == plain.tokens(indices)


def test_bpe_dropout_never_makes_a_pair_too_long(tmp_path: Path) -> None:
    data = [write_data("translate", tmp_path)]
    more = {**BPE, "data": {"bpe_dropout": 0.9}, "model": {"max_positions": 30}}
    task = prepared(data, tmp_path / "x", more).task
    for indices in task.plan(0):
        batch = task.batch(indices, 0)
        assert max(batch.src.shape[1], batch.tgt_out_NT.shape[1]) <= 30


@pytest.mark.parametrize("kind", ["word", "unigram"])
def test_bpe_dropout_is_for_bpe(kind: str, tmp_path: Path) -> None:
    more: Settings = {"tokenizer": {"kind": kind, "vocab_size": 400}, "data": {"bpe_dropout": 0.1}}
    with pytest.raises(ConfigError, match=f"skips merges of BPE, but tokenizer.kind is {kind}"):
        run("translate", tmp_path / "never read", tmp_path / "out", more=more)


def write_tagged(folder: Path) -> list[Path]:
    """Write the same sources with two kinds of targets: reversed, and in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = sorted(set(artificial_text(70)))
    turned = write_lines(folder / "turned.tsv", [f"{line}\t{' '.join(reversed(line.split()))}" for line in lines])
    loud = write_lines(folder / "loud.tsv", [f"{line}\t{line.upper()}" for line in lines])
    return [turned, loud]


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """A model with two tags."""
    turned, loud = write_tagged(tmp_path)
    run("translate", [Path(f"{turned}@turned:2"), Path(f"{loud}@loud")], tmp_path / "model", steps=2)
    return tmp_path / "model"


def test_tags_are_tokens_before_the_sources_of_their_file(tmp_path: Path) -> None:
    turned, loud = write_tagged(tmp_path)
    started = prepared([turned, loud], tmp_path / "x", {"data": {"source_tags": ["turned", "loud"]}})
    task, tokenizer = started.task, started.tokenizer
    assert isinstance(task, TranslationTask) and tokenizer
    assert tokenizer.config.special_tokens == ("<turned>", "<loud>")
    assert task.train.file_index_N is not None
    first_N = [task.train.source[index][0] for index in range(len(task.train))]
    assert first_N == [tokenizer.tag_id(("turned", "loud")[number]) for number in task.train.file_index_N]
    for index, pair in enumerate(task.valid_pairs):
        tag_id = tokenizer.tag_id(("turned", "loud")[pair.file_index])
        assert task.valid.source[index][0] == tag_id and tag_id not in task.valid.target[index]


def test_a_tagged_model_requires_a_tag(
    tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = clearhead.load(tagged)
    with pytest.raises(TaskError, match="choose one of loud, turned with --tag, or with_tag in Python"):
        model.translate("The old cow eats the grass.")
    with pytest.raises(TaskError, match="was trained with the tags loud, turned, not 'soft'"):
        model.with_tag("soft")
    ids = {tag: model.with_tag(tag).tokenizer.encode("The old cow.").ids for tag in ("loud", "turned")}
    assert ids["loud"][1:] == ids["turned"][1:] and ids["loud"][0] != ids["turned"][0]
    loud = clearhead.load(tagged, tag="loud")
    trace = loud.trace("The old cow.")
    assert trace.source[0].text == "<loud>" and trace.source[0].is_special
    assert (trace.source[1].start, trace.source[1].end) == (0, 3)
    pairs = write_tagged(tmp_path / "test")
    for arguments in (["evaluate", str(tagged), str(pairs[1])], ["score", str(tagged), str(pairs[1])]):
        assert main([*arguments, "--threads", "1"]) == 2
        assert "--tag" in capsys.readouterr().err
        assert main([*arguments, "--threads", "1", "--tag", "loud"]) == 0
    lines = write_lines(tmp_path / "in.txt", ["The old cow eats the grass in the field."])
    for tag, code in (("loud", 0), ("soft", 2)):
        with lines.open("rb") as stream:
            monkeypatch.setattr("sys.stdin", type("Stream", (), {"buffer": stream, "isatty": lambda self: False})())
            assert main(["translate", str(tagged), "--tag", tag, "--threads", "1"]) == code
    card = (tagged / "README.md").read_text()
    assert "clearhead translate DIR --tag turned < input.txt" in card and "- tags: `loud`, `turned`" in card
    capsys.readouterr()
    assert main(["serve", str(tagged), "--port", "0"]) == 2
    assert "choose one of loud, turned with --tag" in capsys.readouterr().err


def test_pairs_are_aligned_and_listed_with_a_tag(
    tagged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tag is neither aligned as a word nor an entry of the shortlist."""
    text, target, out = "The old cow eats the grass.", "grass", tmp_path / "list"
    pairs = write_lines(tmp_path / "pairs.tsv", [f"{text}\t{target}"] * 3)
    for arguments in (["align", str(tagged), str(pairs)], ["shortlist", str(tagged), str(pairs), "--out", str(out)]):
        assert main(arguments) == 2
        assert "with --tag" in capsys.readouterr().err
        assert main([*arguments, "--tag", "loud"]) == 0
    model = clearhead.load(tagged, tag="loud")
    [alignment] = model.align([Pair(text, target, 1)])
    assert alignment.source_words == ("The", "old", "cow", "eats", "the", "grass", ".")
    listed, ids = model.load_shortlist(out), model.tokenizer.encode_batch([text])[0]
    assert {*ids[1:]} <= {*listed.allowed_targets(ids)} and ids[0] not in listed.allowed_targets(ids)
    assert model.translate_many([text], shortlist=listed)[0].finish_reason in ("end", "length")


def test_a_tag_changes_the_input_of_the_network(tagged: Path) -> None:
    model, text, target = clearhead.load(tagged), "The old cow eats the grass.", "grass"
    scores = [model.with_tag(tag).trace(text, target).log_prob for tag in ("loud", "turned")]
    assert scores[0] != scores[1]


def test_a_model_with_tags_is_trained_further_with_them(tagged: Path, tmp_path: Path) -> None:
    turned, _ = write_tagged(tmp_path / "more")
    settings = {"training": settings_of("translate")["training"], "data": {"validation_share": 0.2}}

    def fine_tune(name: str, out: str) -> Path:
        clearhead.train(f"{turned}@{name}", tmp_path / out, steps=1, start=tagged, settings=settings, threads=1)
        return tmp_path / out

    assert clearhead.load(fine_tune("loud", "known")).config.data.source_tags == ("loud",)
    with pytest.raises(TokenizerError, match="has no tag soft; it has turned, loud"):
        fine_tune("soft", "unknown")


@pytest.mark.parametrize(
    ("names", "valid", "more", "message"),
    [
        (["turned.tsv@a", "loud.tsv"], [], {}, "loud.tsv has no tag; tag all files"),
        (["turned.tsv@pad"], [], {}, "expected a tag of letters, digits"),
        (["turned.tsv"], [], {"source_tags": "a,b"}, "data.source_tags has 2 tags for 1 files of pairs"),
        (["turned.tsv@a"], ["loud.tsv"], {}, "name one for each validation file too"),
        (["turned.tsv@a"], ["loud.tsv@b"], {}, r"expected tags of the training files \(a\), got b"),
        (["turned.tsv"], ["loud.tsv@b"], {}, r"tags of the training files \(none\), got b"),
        (["turned.tsv@a"], [], {"validation_tags": "a"}, "data.validation_tags has no meaning without --valid"),
        (["turned.tsv@a"], ["loud.tsv@a:2"], {}, "--valid files cannot have a weight"),
    ],
)
def test_contradictory_tags_are_refused(
    names: list[str], valid: list[str], more: dict[str, str], message: str, tmp_path: Path
) -> None:
    write_tagged(tmp_path)
    settings = {**settings_of("translate"), "data": more}
    request = TrainRequest([tmp_path / name for name in names], tmp_path / "out", [tmp_path / name for name in valid],
                      settings=settings, threads=1)  # fmt: skip
    with pytest.raises(ClearheadError, match=message):
        train(request, RecordingCallback())


def test_validation_files_have_their_tags(tmp_path: Path) -> None:
    turned, loud = write_tagged(tmp_path)
    settings = settings_of("translate")
    del settings["data"]["validation_share"]
    request = TrainRequest([Path(f"{turned}@a"), Path(f"{loud}@b")], tmp_path / "out", valid=[Path(f"{loud}@b")],
                      settings=settings, threads=1)  # fmt: skip
    started = prepare(request, RecordingCallback())
    assert isinstance(started.task, TranslationTask) and started.tokenizer
    assert {int(started.task.valid.source[index][0]) for index in range(3)} == {started.tokenizer.tag_id("b")}
