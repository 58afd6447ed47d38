"""Builds the pipeline of each kind and learns its vocabulary with the trainers of `tokenizers`.

One construction makes decoding exact for all kinds. A space is put before the text, and every space stays in front of
the word that follows it, inside the pieces: "A dog." is " A", " dog", ".". Decoding is concatenation, less the
first space, and needs no rule about where spaces go. Only what is shown to people has "▁" for the space, so a "▁" in
a text is a character like any other.

Text can never turn into a special token or a byte. They are entries of the vocabulary but no "added tokens", which
the library would look for in the text, and they are all written "<...>", while the pre-tokenizer lets a "<" stand
with nothing but a space and other "<". What the model sees is therefore never spelled that way; the tokens of
pretokenized text keep their space and are not either.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from clearhead.config import TokenizerConfig
from clearhead.errors import TokenizerError

CONTINUATION = "##"
BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
SCORE_DIGITS = 6
CHARACTER_SCORE_STEP = 0.0001

_LETTERS = r" ?[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)*"
_DIGIT = r" ?\p{N}"  # one by one: a number never seen before can still be copied
_BLANKS = r"\s+(?!\S)|\s"
_MARK = r"[^\s\p{L}\p{M}\p{N}]"
SUBWORD_PATTERN = rf"{_LETTERS}|{_DIGIT}| ?({_MARK})\1*|{_BLANKS}"  # "..." may be one piece, ")." may not
WORD_PATTERN = rf"{_LETTERS}|{_DIGIT}+| ?{_MARK}|{_BLANKS}"
SPLITS = {
    "bpe": SUBWORD_PATTERN,
    "unigram": SUBWORD_PATTERN,
    "wordpiece": WORD_PATTERN,
    "word": WORD_PATTERN,
    "char": r"[\s\S]",
    "pretokenized": r" [^ ]*",
}


def require_encodable(text: str) -> str:
    """The text itself, once it is known to be made of characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"expected text, found half of a surrogate pair at character {error.start + 1}"
        raise TokenizerError(f"{problem}; read the text as UTF-8") from error
    return text


def surface_normalizer(config: TokenizerConfig) -> normalizers.Sequence:
    """What the text is turned into before anything else; decoding gives this text back."""
    form: list[normalizers.Normalizer] = []
    if config.normalization != "none":
        form = [normalizers.NFC() if config.normalization == "nfc" else normalizers.NFKC()]
    steps = list(form)
    if config.lowercase:
        steps += [normalizers.Lowercase(), *form]  # a lower-cased letter may compose with what follows it
    if form:
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex(r"\A | \z"), "")]
    return normalizers.Sequence(steps)


def train_pipeline(texts: Iterable[str], config: TokenizerConfig) -> Pipeline:
    """Learn the vocabulary of `config.kind` from the texts; the same texts give the same pipeline."""
    if config.kind == "imported":
        raise TokenizerError(
            "an imported tokenizer comes with its model; start from that with --from, or set another kind"
        )
    normalizer = surface_normalizer(config)
    lines = [normalizer.normalize_str(require_encodable(text)) for text in texts]
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    if not any(not char.isspace() for char in counts):
        raise TokenizerError("expected text to learn a vocabulary from, got none; check the corpus")
    lines, alphabet = _drop_rare_characters(lines, counts, config)
    fixed = _fixed_tokens(alphabet, config)
    _require_vocab_size(fixed, alphabet, config)
    pipeline = _untrained_pipeline(config)
    pipeline.train_from_iterator(lines, _trainer(fixed, config))
    return Pipeline.from_str(json.dumps(_make_repeatable(json.loads(pipeline.to_str()), config), ensure_ascii=False))


def _drop_rare_characters(
    lines: list[str], counts: Counter[str], config: TokenizerConfig
) -> tuple[list[str], list[str]]:
    """The texts less the characters that get no piece, and the sorted characters that do.

    Kinds that keep tokens whole keep all characters; but a token of pretokenized text that is spelled like a special
    one stays unknown, for people could not tell the two apart.
    """
    if config.kind == "pretokenized":
        specials = set(config.all_special_tokens)
        lines = [" ".join(token for token in line.split(" ") if token not in specials) for line in lines]
    if config.kind in ("word", "char", "pretokenized"):
        return lines, sorted(counts)
    counts[" "] = max(counts[" "], config.threshold)  # one is put before every text
    rare = [char for char, count in counts.items() if count < config.threshold]
    table = {ord(char): None for char in rare}
    kept = [line.translate(table) for line in lines] if table else lines
    return kept, sorted(set(counts) - set(rare))


def _fixed_tokens(alphabet: list[str], config: TokenizerConfig) -> list[str]:
    """The entries that come first, whatever the text: listing them in order is also what makes training repeatable."""
    fixed = list(config.all_special_tokens)
    if config.has_bytes:
        fixed += BYTE_TOKENS
    if config.kind == "wordpiece":
        fixed += [CONTINUATION + char for char in alphabet if not char.isspace()]
    return fixed


def _require_vocab_size(fixed: list[str], alphabet: list[str], config: TokenizerConfig) -> None:
    minimum = len(fixed) + (1 if config.kind in ("word", "char", "pretokenized") else len(alphabet))
    if config.vocab_size < minimum:
        parts = f"{len(fixed)} special, byte and continuation pieces and {minimum - len(fixed)} characters"
        raise TokenizerError(
            f"vocab_size={config.vocab_size} is too small for kind={config.kind} on this text: it needs at least "
            f"{minimum} ({parts}); raise vocab_size or min_frequency"
        )


def _untrained_pipeline(config: TokenizerConfig) -> Pipeline:
    """The untrained pipeline."""
    pipeline = Pipeline(_model(config))
    before = [] if config.kind == "char" else [normalizers.Prepend(" ")]
    pipeline.normalizer = normalizers.Sequence([surface_normalizer(config), *before])
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(SPLITS[config.kind]), "isolated")
    tail = [] if config.kind == "char" else [decoders.Strip(" ", 1, 0)]
    pipeline.decoder = decoders.Sequence([_joining_decoder(config), decoders.Fuse(), *tail])
    return pipeline


def _model(config: TokenizerConfig) -> models.Model:
    if config.kind == "bpe":
        return models.BPE(unk_token="<unk>", byte_fallback=True)
    if config.kind == "unigram":
        return models.Unigram()
    if config.kind == "wordpiece":
        return models.WordPiece(unk_token="<unk>", continuing_subword_prefix=CONTINUATION)
    return models.WordLevel(unk_token="<unk>")


def _joining_decoder(config: TokenizerConfig) -> decoders.Decoder:
    if config.kind == "wordpiece":
        return decoders.Replace(Regex(rf"\A{CONTINUATION}"), "")
    return decoders.ByteFallback()


def _trainer(fixed: list[str], config: TokenizerConfig) -> trainers.Trainer:
    size, least = config.vocab_size, config.threshold
    if config.kind == "bpe":
        return trainers.BpeTrainer(
            vocab_size=size, min_frequency=least, show_progress=False, special_tokens=fixed, initial_alphabet=[" "]
        )
    if config.kind == "unigram":
        return trainers.UnigramTrainer(
            vocab_size=size, show_progress=False, special_tokens=fixed, unk_token="<unk>", initial_alphabet=[" "]
        )
    if config.kind == "wordpiece":
        return trainers.WordPieceTrainer(
            vocab_size=size, min_frequency=least, show_progress=False, special_tokens=fixed, initial_alphabet=[" "]
        )
    return trainers.WordLevelTrainer(vocab_size=size, min_frequency=least, show_progress=False, special_tokens=fixed)


def _make_repeatable(state: dict[str, Any], config: TokenizerConfig) -> dict[str, Any]:
    """The trained pipeline as data, less what would let text become special and what differs from run to run."""
    state["added_tokens"] = []
    if config.kind == "unigram":
        model = state["model"]
        model["byte_fallback"] = True
        first = len(config.all_special_tokens) + len(BYTE_TOKENS)
        learned = _repeatable_scores(model["vocab"][first:])
        model["vocab"] = model["vocab"][:first] + _keep_best(learned, config.vocab_size - first)
    return state


def _repeatable_scores(learned: list[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """The pieces and log-probabilities of a unigram model, the same in every run.

    The trainer goes through hash tables: its sums differ by 1e-14, pieces change places, and characters that it kept
    only because nothing else spells them get the lowest score plus 0.0001, 0.0002 and so on, in any order. Text of
    which every character is rare leaves nothing to estimate from, and no score (null in JSON).
    """
    lowest = min((score for _, score in learned if score is not None), default=0.0)
    kept_up_to = lowest + CHARACTER_SCORE_STEP * (1 + sum(len(piece) == 1 for piece, _ in learned))

    def repeatable(piece: str, score: float | None) -> float:
        if score is None or (len(piece) == 1 and score < kept_up_to):
            score = lowest
        return round(score, SCORE_DIGITS)

    scores = [(piece, repeatable(piece, score)) for piece, score in learned]
    return sorted(scores, key=lambda entry: (-entry[1], entry[0]))


def _keep_best(learned: list[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """All characters and the likeliest of the other pieces: the trainer gives too many when there is room for few."""
    room = count - sum(len(piece) == 1 for piece, _ in learned)
    longer = {piece for piece, _ in [entry for entry in learned if len(entry[0]) > 1][:room]}
    return [entry for entry in learned if len(entry[0]) == 1 or entry[0] in longer]
