"""Segmentation: parts and whitespace form the text, dates and abbreviations stay whole, and every part fits."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.segmentation import (
    TARGET_TOKEN,
    TARGET_TOKEN_OR_TASK_PREFIX,
    Segmenter,
    SplitMode,
    choose_split,
    split_sentences,
)


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Return token counts: every three characters of a word are one token, so that words vary as with subwords."""
    return [sum(-(-len(word) // 3) for word in text.split()) for text in texts]


def segmenter(mode: SplitMode = "sentences", language: str = "en", limit: int = 1000) -> Segmenter:
    """Return a segmenter that uses `count_tokens`."""
    return Segmenter(mode, language, limit, count_tokens)


WHOLE = [
    ("de", "Am 3. März 2024 kam Dr. Müller mit z. B. zwei Hunden."),
    ("", "3. März 2024"),
    ("deu", "Ein Mann arbeitet auf Höhe des 2. Stocks an einem Gebäude."),
    ("en", "Dr. Smith paid $3.50 to Mr. Jones on Jan. 3rd, 2024."),
    ("en", "translate English to German: That is good."),
    ("en", "1. 2. 3."),
    ("de-AT", "Am 3. März 2024 kam er."),
    ("swa", "Bw. Juma alienda nyumbani."),
]


@pytest.mark.parametrize(("language", "text"), WHOLE)
def test_dates_abbreviations_and_prefixes_stay_whole(language: str, text: str) -> None:
    assert split_sentences(text, language) == [text]


def test_sentences_keep_their_whitespace() -> None:
    text = "It is late. Where are you?  Here!\n\nGood. "
    [lines] = segmenter().segment(["A list\nmilk\neggs. Bread"])
    assert lines.parts == ("A list", "milk", "eggs.", "Bread") and lines.gaps == ("\n", "\n", " ")
    assert split_sentences(text, "en") == ["It is late. ", "Where are you?  ", "Here!\n\n", "Good. "]
    [segmented] = segmenter().segment([text])
    assert segmented.parts == ("It is late.", "Where are you?", "Here!", "Good.") and not segmented.is_long
    assert segmented.join(["a", "b", "c", "d"]) == "a b  c\n\nd"


def test_a_space_is_added_only_for_scripts_that_have_them() -> None:
    [segmented] = segmenter(language="ja").segment(["これは本です。あれは犬です。"])
    assert segmented.join(["This is a book.", "That is a dog."]) == "This is a book. That is a dog."
    assert segmented.join(["这是书。", "那是狗。"]) == "这是书。那是狗。"


def test_modes() -> None:
    text = "One. Two.\nThree."
    parts = {mode: segmenter(mode).segment([text])[0].parts for mode in ("sentences", "lines", "none")}
    assert parts == {"sentences": ("One.", "Two.", "Three."), "lines": ("One. Two.", "Three."), "none": (text,)}


def test_a_text_of_one_part_is_unchanged_and_an_empty_one_has_none() -> None:
    single, empty, blank = segmenter().segment(["  a dog ", "", " \n "])
    assert single.parts == ("  a dog ",) and empty.parts == blank.parts == () and empty.join([]) == ""


def test_long_parts_are_split_at_sentences_then_words_then_characters() -> None:
    [segmented] = segmenter("none", limit=4).segment(["Dogs run. Cats sleep. " + "x" * 20 + " end"])
    assert segmented.parts == ("Dogs run.", "Cats sleep.", "xxxx", "xxxx", "xxxx", "xxxx", "xxxx", "end")
    assert segmented.is_long and max(count_tokens(segmented.parts)) <= 4
    assert segmented.gaps == (" ", " ", "", "", "", "", " ")


@pytest.mark.parametrize("text", ["Plan B\u00a0. Ja.", "Vitamin C\u202f.", "A\u3000. B", "a" + "\u0301" * 600 + "."])
@pytest.mark.parametrize("language", ["en", "de", "fr", "ja", "am", ""])
def test_odd_whitespace_and_marks(text: str, language: str) -> None:
    """sentencex 1.0.32 panics on the first three."""
    assert "".join(split_sentences(text, language)) == text
    [segmented] = segmenter(language=language, limit=50).segment([text])
    assert max(count_tokens(segmented.parts)) <= 50


def test_prefixes_are_repeated_in_every_part() -> None:
    marked = Segmenter("sentences", "en", 9, count_tokens, TARGET_TOKEN)
    assert marked.segment([">>fra<< Hi there. Hello."])[0].parts == (">>fra<< Hi there.", ">>fra<< Hello.")
    assert marked.segment([">>fra<< Hello."])[0].parts == (">>fra<< Hello.",)
    task = Segmenter("none", "en", 9, count_tokens, TARGET_TOKEN_OR_TASK_PREFIX)
    segmented = task.segment(["to German: one two three four five six"])[0]
    assert segmented.is_long and all(part.startswith("to German: ") for part in segmented.parts)
    assert " ".join(part.removeprefix("to German: ") for part in segmented.parts) == "one two three four five six"
    assert max(count_tokens(segmented.parts)) <= 9


@given(
    st.text("aB. !?\n1é[MASK]。\u00a0\u3000\u2028\u0301", max_size=200),
    st.integers(1, 9),
    st.sampled_from(["sentences", "lines", "none"]),
)
def test_all_text_is_kept_and_every_part_fits(text: str, limit: int, mode: SplitMode) -> None:
    [segmented] = segmenter(mode, limit=limit).segment([text])
    assert len(segmented.gaps) == max(0, len(segmented.parts) - 1)
    joined = "".join(part + (gap or "") for part, gap in zip_longest(segmented.parts, segmented.gaps))
    assert joined.strip() == text.strip()
    assert all(count <= limit or part in ("[MASK]", "<mask>") or len(part) == 1
               for part, count in zip(segmented.parts, count_tokens(segmented.parts), strict=True))  # fmt: skip


def test_the_split_mode_follows_the_training_sources() -> None:
    sentences = [f"Sentence {number} is here." for number in range(50)]
    assert choose_split(sentences, "en").mode == "sentences"
    assert choose_split([f"{sentence} And more." for sentence in sentences], "en").mode == "lines"
    assert choose_split([f"{sentence}\nNext line." for sentence in sentences], "en").mode == "none"
    assert choose_split([f"translate English to German: {sentence}" for sentence in sentences], "en").mode == "none"
    mixed = choose_split(sentences + [f"{sentence} And more." for sentence in sentences[:3]], "en")
    assert mixed.mode == "sentences" and mixed.multi_sentence_share == pytest.approx(3 / 53)


def test_splitting_and_joining_do_not_import_torch() -> None:
    modules = "clearhead.data.segmentation, clearhead.tasks.long_texts, clearhead.tasks.generated_text"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
