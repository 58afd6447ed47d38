"""SentencePiece models: the tokens of the library, and damaged files."""

from pathlib import Path

import pytest

from clearhead.errors import InteropError
from clearhead.interop.subword_tokenizers import SentencePieceModel, self_contained_sentencepiece_tokenizer
from tests.interop.folders import UNIGRAM, write_spm

TEXTS = [
    "The small dog runs.", "  two   spaces ", "ﬁne ½ Ａ", "naïve café", "日本語 and more", "<unk> </s> <s>", "a\tb", "",
    "runningrunning the the", "x" * 40,
]  # fmt: skip


def segment(path: Path, text: str) -> list[str]:
    """Return the tokens of a text."""
    pipeline, tokens = SentencePieceModel.read(path).pipeline()
    return [tokens[index] for index in pipeline.encode(text, add_special_tokens=False).ids]


def test_tokens_equal_those_of_the_library(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    words = [
        "the",
        "small",
        "dog",
        "runs",
        "and",
        "a",
        "big",
        "cat",
        "sleeps",
        "while",
        "running",
        "naïve",
        "cafés",
        ".",
    ]
    lines = [" ".join(words[(n * k) % len(words)] for k in range(1, 9)) for n in range(1, 400)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    library.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "m"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    truth = library.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    model = SentencePieceModel.read(tmp_path / "m.model")
    assert [token.name for token in model.tokens] == [truth.id_to_piece(index) for index in range(len(truth))]
    for text in TEXTS:
        ids = truth.encode(text)
        expected = [truth.id_to_piece(index) for index in ids]
        assert segment(tmp_path / "m.model", text) == expected, text


def test_special_tokens_do_not_occur_in_text(tmp_path: Path) -> None:
    write_spm(tmp_path / "m.model", [("▁a", -1.0), ("<", -3.0), ("/", -3.0), ("s", -3.0), (">", -3.0)])
    assert segment(tmp_path / "m.model", "a</s>") == ["▁a", "<", "/", "s", ">"]


def test_a_model_without_vocabulary_has_its_own_ids(tmp_path: Path) -> None:
    write_spm(tmp_path / "m.model", UNIGRAM)
    roles = {"pad": "<s>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    tokenizer = self_contained_sentencepiece_tokenizer(tmp_path / "m.model", 40, ["<extra_id_0>"], roles)
    assert tokenizer.encode("the dogs").ids == [3, 4, 6]
    assert tokenizer.token_id("<extra_id_0>") == 3 + len(UNIGRAM)
    assert 3 + len(UNIGRAM) in tokenizer.special_ids
    assert tokenizer.vocab_size == 40


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff", b"PK\x03\x04abcdefgh", b"\x0a\x02\x08\x01", bytes(50)])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.model").write_bytes(content)
    with pytest.raises(InteropError, match=r"m\.model"):
        SentencePieceModel.read(tmp_path / "m.model")


def test_other_kinds_are_refused_by_name(tmp_path: Path) -> None:
    write_spm(tmp_path / "m.model", UNIGRAM, model_kind=2)
    with pytest.raises(InteropError, match="of kind bpe is not supported"):
        SentencePieceModel.read(tmp_path / "m.model")
