"""Several sentences in one text: each is translated, and the translations are joined with the original whitespace."""

import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import clearhead
from clearhead.api import Model
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.data.readers.pairs import Pair
from clearhead.errors import ClearheadError
from clearhead.serving.app import make_app
from tests.tasks.all_tasks import Models
from tests.trained_model import Trained

FIRST, SECOND = "The dog sees the cat.", "The old king sleeps."


@pytest.fixture(scope="module")
def model(trained: Trained) -> Iterator[Model]:
    """Return the model of the grammar, whose training pairs are single sentences."""
    yield clearhead.load(trained.folder)


def test_training_records_the_split_mode_and_the_languages(trained: Trained, tmp_path: Path) -> None:
    assert read_manifest(trained.folder).data["split"] == "sentences"
    assert read_manifest(trained.folder).data["languages"] == []
    pairs = [line.split("\t") for line in trained.train.read_text(encoding="utf-8").splitlines()[:60]]
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    for side, path in enumerate((source, target)):  # two sentences per line
        path.write_text("".join(f"{one[side]} {one[side]}\n" for one in pairs), encoding="utf-8")
    small = ["--steps", "1", "--threads", "1", "--set", "model.model_dim=8", "--set", "model.num_heads=2"]
    assert main(["train", str(source), str(target), "--out", str(tmp_path / "two"), *small]) == 0
    data = read_manifest(tmp_path / "two").data
    assert data["split"] == "lines" and data["languages"] == ["en", "de"]
    named = ["--languages", "sv:da", "--set", "data.split=sentences"]
    assert main(["train", str(source), str(target), "--out", str(tmp_path / "named"), *small, *named]) == 0
    data = read_manifest(tmp_path / "named").data
    assert data["split"] == "sentences" and data["languages"] == ["sv", "da"]


def test_a_wrong_language_is_refused(trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(trained.train), "--out", str(tmp_path / "m"), "--languages", "english"]) == 2
    assert "expected the codes of source and target, as in en:de" in capsys.readouterr().err


@pytest.mark.parametrize("gap", [" ", "  ", "\n", "\n\n"])
def test_sentences_are_translated_one_by_one(gap: str, model: Model) -> None:
    alone = [model.translate(text).text for text in (FIRST, SECOND)]
    found = model.translate(f" {FIRST}{gap}{SECOND}\n")
    assert found.text == gap.join(alone)
    assert [part.source for part in found.parts] == [FIRST, SECOND]
    assert found.to_json()["parts"][1]["text"] == alone[1]
    assert found.tokens == found.parts[0].translation.tokens + found.parts[1].translation.tokens
    assert "parts" not in model.translate(FIRST).to_json()


def test_streamed_sentences_are_the_same_text(model: Model) -> None:
    text = f"{FIRST}  {SECOND}"
    expected, parts = model.translate(text, beam_size=1), list[str]()
    streaming = model.stream_translation(text, beam_size=1)
    while True:
        try:
            parts.append(next(streaming))
        except StopIteration as done:
            assert done.value.text == "".join(parts) == expected.text
            assert len(done.value.parts) == 2
            return


def test_requests_for_a_whole_text_are_not_split(model: Model) -> None:
    text = f"{FIRST} {SECOND}"
    single = model.translate(text, split=False)
    assert not single.parts and single.text != model.translate(text).text
    assert not model.translate(text, prefix="Der").parts and not model.translate(text, include=["Hund"]).parts
    settings = model.decoding(beam_size=2)
    assert not any(one.parts for one in model.translate_n_best([text], 2, settings)[0])
    [pair] = model.translate_pairs([Pair(text, "", 1)])
    assert pair == single


def test_models_of_longer_texts_do_not_split(tmp_path: Path, trained: Trained) -> None:
    lines = [line.split("\t") for line in trained.train.read_text(encoding="utf-8").splitlines()]
    path = tmp_path / "documents.tsv"
    path.write_text("".join(f"{a[0]} {b[0]}\t{a[1]} {b[1]}\n" for a, b in pairwise(lines)))
    options = ["--steps", "1", "--threads", "1", "--set", "model.model_dim=8", "--set", "model.num_heads=2"]
    assert main(["train", str(path), "--out", str(tmp_path / "m"), *options]) == 0
    documents = clearhead.load(tmp_path / "m")
    assert not documents.translate(f"{FIRST} {SECOND}").parts
    assert len(documents.translate(f"{FIRST} {SECOND}\n{FIRST}").parts) == 2


def test_command_and_server_split_in_the_same_way(
    model: Model, trained: Trained, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{FIRST} {SECOND}"
    split = model.translate(text).text
    for options, expected in (([], split), (["--no-split"], model.translate(text, split=False).text)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n".encode())))
        assert main(["translate", str(trained.folder), *options]) == 0
        assert capsys.readouterr().out == expected + "\n"
    client = TestClient(make_app({"m": model}))
    answer = client.post("/v1/translate", json={"text": [text, f"{FIRST}\n{SECOND}"]}).json()["translations"]
    assert answer[0]["text"] == split and len(answer[0]["parts"]) == 2
    assert answer[1]["text"] == "\n".join(model.translate([FIRST, SECOND])[number].text for number in (0, 1))


LISTS = {"translate": "translate", "denoise": "translate", "classify": "classify", "tag": "tag", "lm": "generate"}


@pytest.mark.parametrize(("task", "method"), LISTS.items())
def test_every_method_accepts_a_list(task: str, method: str, models: Models) -> None:
    call = getattr(clearhead.load(models[task]), method)
    texts = ["The old dog.", "A cat"]
    found = call(texts)
    assert isinstance(found, list) and len(found) == 2
    assert [str(one)[:30] for one in found] == [str(call(text))[:30] for text in texts]
    assert len(call(tuple(texts))) == 2 and call([]) == []


@pytest.mark.parametrize("value", [None, 3, b"text", ["a", None], {"a": 1}, iter(["a"]), "a\ud800. B"])
@pytest.mark.parametrize(
    ("task", "method"), [*LISTS.items(), ("mlm", "fill"), ("mlm", "embed"), ("translate", "trace")]
)
def test_other_types_are_refused(task: str, method: str, value: object, models: Models) -> None:
    with pytest.raises(ClearheadError, match=r"expected a|surrogate"):
        getattr(clearhead.load(models[task]), method)(value)


def test_masks_and_embeddings_of_a_list(models: Models) -> None:
    model = clearhead.load(models["mlm"])
    filled = model.fill(["The [MASK].", "none", "[MASK] and [MASK]"], top=1)
    assert [len(masks) for masks in filled] == [1, 0, 2]
    vectors = model.embed(["The dog.", ""])
    assert len(vectors) == 2 and vectors[0].shape == (12,) and bool((vectors[1] != vectors[1]).all())
