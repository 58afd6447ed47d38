"""Splits a text into parts that a model can process, and joins the outputs with the whitespace of the text.

Sentence boundaries come from sentencex, the segmenter of Wikimedia's translation service: maintained, rules for about
300 languages, 1 microsecond per line, no model files and no dependencies. pysbd has had no release since 2021, Punkt
(NLTK) needs a download, and the splitters of stanza and wtpsplit need torch.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sentencex  # type: ignore[import-untyped]

SplitMode = Literal["sentences", "lines", "none"]
"""Split points of a text of any length: sentence ends and newlines, newlines only, or none."""
CountTokens = Callable[[Sequence[str]], Sequence[int]]

FALLBACK_LANGUAGE = "en"  # sentencex applies the rules of English to unknown languages
# ISO 639-3 codes, by which corpora are often named, to ISO 639-1 codes, which sentencex expects.
_TWO_LETTERS = {
    "ara": "ar", "bul": "bg", "cat": "ca", "ces": "cs", "dan": "da", "deu": "de", "ell": "el", "eng": "en", "est": "et",
    "fas": "fa", "hrv": "hr", "isl": "is", "lav": "lv", "slk": "sk", "slv": "sl", "srp": "sr",
    "fin": "fi", "fra": "fr", "ger": "de", "heb": "he", "hin": "hi", "hun": "hu", "ita": "it", "jpn": "ja", "kor": "ko",
    "nld": "nl", "nob": "nb", "pol": "pl", "por": "pt", "ron": "ro", "rus": "ru", "spa": "es", "swa": "sw", "swe": "sv",
    "tur": "tr", "ukr": "uk", "zho": "zh",
}  # fmt: skip
_ENDS_WITH_ORDINAL = re.compile(r"(?:^|\s)\d{1,2}\.\s*$")
# Languages that write ordinals with a period, as in "2. Stock"; sentencex recognizes these in dates only. "" is an
# unknown language: there, splitting a date is a more frequent error than joining a sentence that ends with a number.
_ORDINAL_LANGUAGES = frozenset([
    "", "cs", "da", "de", "et", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr",
])  # fmt: skip
_OTHER_WHITESPACE = re.compile(r"[^\S\n\r\t ]")
_MASK_OR_CHARACTER = re.compile(r"\[MASK\]|<mask>|.", re.DOTALL)
_TASK_PREFIX = re.compile(r"[^\n.!?:]{1,60}: ")
TARGET_TOKEN = re.compile(r">>[\w-]+<<\s*")
"""The target language at the beginning of a source, as Marian's multilingual models need it."""
TARGET_TOKEN_OR_TASK_PREFIX = re.compile(f"{TARGET_TOKEN.pattern}|{_TASK_PREFIX.pattern}")
_MAX_PREFIXES = 20  # maximum number of task prefixes of one model
MAX_MULTI_SENTENCE = 0.1
"""Share of sources with several sentences up to which a corpus counts as single sentences: 0.0001 in Multi30k, 0.01 in
Tatoeba and 0.04 in the news of MAFAND."""
_VOWELS = frozenset("aeiouyäöüåæøœ")


@dataclass(frozen=True)
class SegmentedText:
    """The parts of a text, none of them empty, and the whitespace between them; a text of one part is unchanged."""

    parts: tuple[str, ...]
    gaps: tuple[str | None, ...]
    """Whitespace between each part and the next; None between sentences that no whitespace separates."""
    is_long: bool = False
    """Whether a part exceeded the token limit and was split."""

    def join(self, outputs: Sequence[str]) -> str:
        """Return the outputs, one per part, with the whitespace of the text between them."""
        assert len(outputs) == len(self.parts)
        joined = outputs[0] if outputs else ""
        for gap, output in zip(self.gaps, outputs[1:], strict=True):
            joined += gap_between(joined, output, gap) + output
        return joined


def gap_between(before: str, after: str, gap: str | None) -> str:
    """Return the whitespace between two outputs; None becomes a space unless one side is in a script without spaces."""
    if gap is not None:
        return gap
    return "" if not before or not after or _is_wide(before[-1]) or _is_wide(after[0]) else " "


class Segmenter:
    """Splits texts for one model: by its split mode, and wherever a part has more tokens than the model accepts."""

    def __init__(
        self,
        mode: SplitMode,
        language: str,
        limit: int,
        count_tokens: CountTokens,
        prefix: re.Pattern[str] | None = None,
    ) -> None:
        """`prefix` matches the beginning of a text, such as a target language token, that is repeated in every part."""
        self.mode, self.language, self.limit, self.count_tokens = mode, language, limit, count_tokens
        self.prefix = prefix

    def segment(self, texts: Sequence[str]) -> list[SegmentedText]:
        """Return the parts of each text."""
        raw = [self._parts(text.strip()) for text in texts]
        counts = iter(self.count_tokens([part.strip() for parts in raw for part in parts]))
        return [
            self._split_to_limit(text, parts, [next(counts) for _ in parts])
            for text, parts in zip(texts, raw, strict=True)
        ]

    def _split_to_limit(self, text: str, parts: Sequence[str], counts: Sequence[int]) -> SegmentedText:
        """Return the parts of a text; parts whose token count exceeds the limit are split further."""
        match = self.prefix.match(text.strip()) if self.prefix else None
        if match and (len(parts) > 1 or max(counts) > self.limit):
            size = self.count_tokens([match[0].strip()])[0]
            remainder = Segmenter(self.mode, self.language, max(1, self.limit - size), self.count_tokens)
            [segmented] = remainder.segment([text.strip()[match.end() :]])
            return replace(segmented, parts=tuple(match[0] + part for part in segmented.parts))
        is_long = any(count > self.limit for count in counts)
        groups = [
            [part] if count <= self.limit else list(self._split_long(part))
            for part, count in zip(parts, counts, strict=True)
        ]
        segmented = _strip_parts(groups, is_long)
        is_single = len(segmented.parts) == 1 and not is_long
        if is_single and (text == segmented.parts[0] or self.count_tokens([text])[0] <= self.limit):
            return replace(segmented, parts=(text,))
        return segmented

    def _parts(self, text: str) -> list[str]:
        """Return the parts by split mode, each with the whitespace after it."""
        if not text or self.mode == "none":
            return [text] if text else []
        lines: list[str] = re.findall(r"\s*[^\n]*\n*", text)[:-1]
        if self.mode == "lines":
            return lines
        return [sentence for line in lines for sentence in split_sentences(line, self.language)]

    def _split_long(self, text: str) -> Iterator[str]:
        """Yield parts of at most `limit` tokens: whole sentences if they fit, then whole words, then characters."""
        levels = (lambda part: split_sentences(part, self.language), _words, _characters, list[str])
        yield from self._pack([text], levels)

    def _pack(self, units: Sequence[str], levels: Sequence[Callable[[str], Sequence[str]]]) -> Iterator[str]:
        """Yield groups of consecutive units that fit; a unit that does not fit is split by the next level."""
        counts = self.count_tokens([unit.strip() for unit in units])
        group, size = list[str](), 0
        for unit, count in zip(units, counts, strict=True):
            if group and size + count > self.limit:
                yield from self._yield_within_limit(group, levels)
                group, size = [], 0
            group.append(unit)
            size += count
        yield from self._yield_within_limit(group, levels)

    def _yield_within_limit(
        self, group: Sequence[str], levels: Sequence[Callable[[str], Sequence[str]]]
    ) -> Iterator[str]:
        """Yield the group as one part if it fits, else in halves: joined units may have more tokens than before."""
        text = "".join(group)
        if self.count_tokens([text.strip()])[0] <= self.limit:
            yield text
        elif len(group) > 1:
            middle = len(group) // 2
            yield from self._yield_within_limit(group[:middle], levels)
            yield from self._yield_within_limit(group[middle:], levels)
        elif levels:
            yield from self._pack(levels[0](text), levels[1:])
        else:
            yield text  # a single character that the tokenizer spells with more tokens than the limit


def split_sentences(text: str, language: str = "") -> list[str]:
    """Return the sentences of a text, each with the whitespace after it; joined, they are the text.

    `language` is an ISO 639 code, or empty if it is unknown.
    """
    base = language.partition("-")[0]
    code = _TWO_LETTERS.get(base, base)
    sentences: list[list[str]] = []
    has_letter = False  # whether the last sentence has one
    for part in _segment(text, code or FALLBACK_LANGUAGE):
        is_begun = bool(sentences) and not _is_complete(sentences[-1], has_letter, code in _ORDINAL_LANGUAGES)
        if sentences and (is_begun or not part.strip()):
            sentences[-1].append(part)
            has_letter = has_letter or _has_letter(part)
        else:
            sentences.append([part])
            has_letter = _has_letter(part)
    if len(sentences) > 1 and not has_letter and "\n" not in sentences[-2][-1]:
        sentences[-2:] = [sentences[-2] + sentences[-1]]
    return ["".join(parts) for parts in sentences]


def _segment(text: str, code: str) -> Iterator[str]:
    """Yield the parts of a text by sentencex; the whole text if sentencex fails.

    sentencex 1.0.32 panics on non-ASCII whitespace after a capital letter, as in "Plan B\\u00a0.", so it gets spaces.
    """
    try:
        parts = sentencex.segment(code, _OTHER_WHITESPACE.sub(" ", text))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a panic of Rust code derives from BaseException; it must not end the job
        parts = [text]
    start = 0
    for part in parts:
        yield text[start : start + len(part)]
        start += len(part)
    if start < len(text):
        yield text[start:]


def _is_complete(parts: Sequence[str], has_letter: bool, has_ordinals: bool) -> bool:
    """Return whether parts can be a sentence, and not the beginning of one: a number, an initial or an abbreviation."""
    last = parts[-1]
    if "\n" in last[len(last.rstrip()) :]:
        return True  # a newline ends any sentence
    if not has_letter or (has_ordinals and _ENDS_WITH_ORDINAL.search(last[-8:])):
        return False
    is_short = len(parts) == 1 and len(last) < 8 and last.isascii() and last.rstrip().endswith(".")
    return not (is_short and len(last.split()) == 1 and not _VOWELS & {*last.lower()})


def _strip_parts(groups: Sequence[Sequence[str]], is_long: bool) -> SegmentedText:
    """Return the parts without whitespace, and the whitespace between them; a sentence or line ends with each group."""
    parts, gaps = list[str](), list[str | None]()
    for group in groups:
        for number, part in enumerate(group, 1):
            text = part.strip()
            if not text:
                continue
            if parts and part[0].isspace():
                gaps[-1] = (gaps[-1] or "") + part[: len(part) - len(part.lstrip())]
            parts.append(text)
            gaps.append(part[len(part.rstrip()) :] or (None if number == len(group) else ""))
    return SegmentedText(tuple(parts), tuple(gaps[:-1]), is_long)


def is_language_code(code: str) -> bool:
    """Return whether a file suffix is a language code: any of two letters, or a common one of ISO 639-3."""
    return code in _TWO_LETTERS or (len(code) == 2 and code.isascii() and code.islower())


def language_pair(source: object, target: object) -> tuple[str, ...]:
    """Return the codes of source and target, "" for an unknown target; an empty tuple if the source is unknown."""
    codes = [code if isinstance(code, str) and is_language_code(code) else "" for code in (source, target)]
    return tuple(codes) if codes[0] else ()


@dataclass(frozen=True)
class SplitChoice:
    """The split mode that fits a corpus, and the share of its sources with more than one sentence."""

    mode: SplitMode
    multi_sentence_share: float


def choose_split(sources: Sequence[str], language: str = "") -> SplitChoice:
    """Return how texts are split for a model trained on these sources.

    A model trained on single sentences translates one sentence at a time. A model trained on longer texts has learned
    to translate them whole. A task prefix as T5's ("translate English to German: ...") belongs to a text as a whole.
    """
    if not sources:
        return SplitChoice("none", 0.0)
    prefixes = Counter(match[0] for source in sources if (match := _TASK_PREFIX.match(source)))
    is_prefixed = sum(count for _, count in prefixes.most_common(_MAX_PREFIXES)) > len(sources) / 2
    several = sum(len(split_sentences(source.strip(), language)) > 1 for source in sources) / len(sources)
    if is_prefixed or sum("\n" in source for source in sources) / len(sources) > MAX_MULTI_SENTENCE:
        return SplitChoice("none", several)
    return SplitChoice("sentences" if several <= MAX_MULTI_SENTENCE else "lines", several)


def _words(text: str) -> list[str]:
    """Return the words of a text, each with the whitespace after it."""
    return re.findall(r"\s*\S+\s*", text)


def _characters(word: str) -> list[str]:
    """Return the characters of a word, each with its combining marks; a mask token is one character."""
    characters: list[str] = []
    for char in _MASK_OR_CHARACTER.findall(word):
        if characters and unicodedata.combining(char[0]):
            characters[-1] += char
        else:
            characters.append(char)
    return characters


def _has_letter(text: str) -> bool:
    return any(char.isalpha() for char in text)


def _is_wide(char: str) -> bool:
    """Return whether a character belongs to a script that is written without spaces."""
    return unicodedata.east_asian_width(char) in "WF"
