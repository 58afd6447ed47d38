"""Construction of the pipeline of each kind of tokenizer, and training of its vocabulary with the library `tokenizers`.

Decoding is exact for all kinds. A space is prepended to the text, and every space stays in the same token as the word
after it: "A dog." becomes " A", " dog", ".". Decoding concatenates the tokens and removes the first space, without
rules about spaces. The mark "▁" for a space appears only where tokens are displayed, so a "▁" in a text is an ordinary
character.

Text never becomes a special token or a byte token. These are entries of the vocabulary but not "added tokens", for
which the library would search the text. They are written "<...>", and the pre-tokenizer separates "<" from everything
except a preceding space and other "<", so no word of a text is spelled that way. The tokens of pretokenized text begin
with a space and therefore differ as well.
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
_DIGIT = r" ?\p{N}"  # one token per digit, so that numbers that are not in the training data can be copied
_BLANKS = r"\s+(?!\S)|\s"
_MARK = r"[^\s\p{L}\p{M}\p{N}]"
SUBWORD_PATTERN = rf"{_LETTERS}|{_DIGIT}| ?({_MARK})\1*|{_BLANKS}"  # "..." may be one token, ")." may not
WORD_PATTERN = rf"{_LETTERS}|{_DIGIT}+| ?{_MARK}|{_BLANKS}"
SPLITS = {
    "bpe": SUBWORD_PATTERN,
    "unigram": SUBWORD_PATTERN,
    "wordpiece": WORD_PATTERN,
    "word": WORD_PATTERN,
    "char": r"[\s\S]",
    "pretokenized": r" [^ ]*",
}


def surface_normalizer(config: TokenizerConfig) -> normalizers.Sequence:
    """Return the normalizer of the text; decoding returns normalized text."""
    form: list[normalizers.Normalizer] = []
    if config.normalization != "none":
        form = [normalizers.NFC() if config.normalization == "nfc" else normalizers.NFKC()]
    steps = list(form)
    if config.lowercase:
        steps += [normalizers.Lowercase(), *form]  # a lowercase letter may compose with the following mark
    if form:
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace(Regex(r"\A | \z"), "")]
    return normalizers.Sequence(steps)


def train_pipeline(texts: Iterable[str], config: TokenizerConfig) -> Pipeline:
    """Return a pipeline with a vocabulary learned from the texts; equal texts give an equal pipeline."""
    if config.kind == "imported":
        raise TokenizerError(
            "an imported tokenizer cannot be trained; use its model with --from, or set another tokenizer.kind"
        )
    normalizer = surface_normalizer(config)
    lines = [normalizer.normalize_str(text) for text in texts]
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    if not any(not char.isspace() for char in counts):
        raise TokenizerError("expected text to learn a vocabulary from, found none; check the corpus")
    lines, alphabet = _drop_rare_characters(lines, counts, config)
    fixed = _fixed_tokens(alphabet, config)
    _require_vocab_size(fixed, alphabet, config)
    pipeline = _untrained_pipeline(config)
    pipeline.train_from_iterator(lines, _trainer(fixed, config))
    return Pipeline.from_str(json.dumps(_make_repeatable(json.loads(pipeline.to_str()), config), ensure_ascii=False))


def _drop_rare_characters(
    lines: list[str], counts: Counter[str], config: TokenizerConfig
) -> tuple[list[str], list[str]]:
    """Return the texts without rare characters, and the sorted alphabet of the other characters.

    Kinds with whole words or characters as tokens keep all characters. A token of pretokenized text that is spelled
    like a special token is dropped and so becomes unknown, because the two could not be distinguished when displayed.
    """
    if config.kind == "pretokenized":
        specials = set(config.all_special_tokens)
        lines = [" ".join(token for token in line.split(" ") if token not in specials) for line in lines]
    if config.kind in ("word", "char", "pretokenized"):
        return lines, sorted(counts)
    counts[" "] = max(counts[" "], config.effective_min_frequency)  # a space is prepended to every text
    rare = [char for char, count in counts.items() if count < config.effective_min_frequency]
    table = {ord(char): None for char in rare}
    lines = [line.translate(table) for line in lines] if table else lines
    return lines, sorted(set(counts) - set(rare))


def _fixed_tokens(alphabet: list[str], config: TokenizerConfig) -> list[str]:
    """Return the first entries of the vocabulary; their fixed order makes training repeatable."""
    fixed = list(config.all_special_tokens)
    if config.has_bytes:
        fixed += BYTE_TOKENS
    if config.kind == "wordpiece":
        fixed += [CONTINUATION + char for char in alphabet if not char.isspace()]
    return fixed


def _require_vocab_size(fixed: list[str], alphabet: list[str], config: TokenizerConfig) -> None:
    """Raise TokenizerError if the fixed tokens and the alphabet do not fit into `vocab_size`."""
    minimum = len(fixed) + (1 if config.kind in ("word", "char", "pretokenized") else len(alphabet))
    if config.vocab_size < minimum:
        parts = f"{len(fixed)} special, byte and continuation tokens and {minimum - len(fixed)} characters"
        raise TokenizerError(
            f"vocab_size={config.vocab_size} is too small for kind={config.kind} on this text: it needs at least "
            f"{minimum} ({parts}); raise vocab_size or min_frequency"
        )


def _untrained_pipeline(config: TokenizerConfig) -> Pipeline:
    """Return the pipeline before training."""
    pipeline = Pipeline(_model(config))
    prepend = [] if config.kind == "char" else [normalizers.Prepend(" ")]
    pipeline.normalizer = normalizers.Sequence([surface_normalizer(config), *prepend])
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(SPLITS[config.kind]), "isolated")
    strip = [] if config.kind == "char" else [decoders.Strip(" ", 1, 0)]
    pipeline.decoder = decoders.Sequence([_joining_decoder(config), decoders.Fuse(), *strip])
    return pipeline


def _model(config: TokenizerConfig) -> models.Model:
    """Return the untrained model of a kind."""
    if config.kind == "bpe":
        return models.BPE(unk_token="<unk>", byte_fallback=True)
    if config.kind == "unigram":
        return models.Unigram()
    if config.kind == "wordpiece":
        return models.WordPiece(unk_token="<unk>", continuing_subword_prefix=CONTINUATION)
    return models.WordLevel(unk_token="<unk>")


def _joining_decoder(config: TokenizerConfig) -> decoders.Decoder:
    """Return the decoder step that turns tokens into text."""
    if config.kind == "wordpiece":
        return decoders.Replace(Regex(rf"\A{CONTINUATION}"), "")
    return decoders.ByteFallback()


def _trainer(fixed: list[str], config: TokenizerConfig) -> trainers.Trainer:
    """Return the trainer of a kind."""
    options: dict[str, Any] = {"vocab_size": config.vocab_size, "show_progress": False, "special_tokens": fixed}
    if config.kind == "unigram":
        return trainers.UnigramTrainer(**options, unk_token="<unk>", initial_alphabet=[" "])
    options["min_frequency"] = config.effective_min_frequency
    if config.kind == "bpe":
        return trainers.BpeTrainer(**options, initial_alphabet=[" "])
    if config.kind == "wordpiece":
        return trainers.WordPieceTrainer(**options, initial_alphabet=[" "])
    return trainers.WordLevelTrainer(**options)


def _make_repeatable(state: dict[str, Any], config: TokenizerConfig) -> dict[str, Any]:
    """Return the trained pipeline, as JSON, without added tokens and with scores that are equal in every run."""
    state["added_tokens"] = []
    if config.kind == "unigram":
        model = state["model"]
        model["byte_fallback"] = True
        first = len(config.all_special_tokens) + len(BYTE_TOKENS)
        learned = _repeatable_scores(model["vocab"][first:])
        model["vocab"] = model["vocab"][:first] + _keep_best(learned, config.vocab_size - first)
    return state


def _repeatable_scores(learned: list[tuple[str, float | None]]) -> list[tuple[str, float]]:
    """Return the tokens and log-probabilities of a unigram model, sorted and rounded to be equal in every run.

    The trainer iterates over hash tables: sums differ by 1e-14, the order of tokens varies, and characters that it kept
    only because no other token contains them get the lowest score plus 0.0001, 0.0002 and so on, in random order. If
    every character of the text is rare, nothing can be estimated and scores are missing (null in JSON).
    """
    lowest = min((score for _, score in learned if score is not None), default=0.0)
    character_limit = lowest + CHARACTER_SCORE_STEP * (1 + sum(len(token) == 1 for token, _ in learned))

    def repeatable(token: str, score: float | None) -> float:
        if score is None or (len(token) == 1 and score < character_limit):
            score = lowest
        return round(score, SCORE_DIGITS)

    scores = [(token, repeatable(token, score)) for token, score in learned]
    return sorted(scores, key=lambda entry: (-entry[1], entry[0]))


def _keep_best(learned: list[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """Return all characters and the most probable longer tokens; the trainer exceeds a small vocabulary size."""
    num_longer = count - sum(len(token) == 1 for token, _ in learned)
    longer = {token for token, _ in [entry for entry in learned if len(entry[0]) > 1][:num_longer]}
    return [entry for entry in learned if len(entry[0]) == 1 or entry[0] in longer]
