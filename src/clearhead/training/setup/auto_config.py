"""What a user did not set, chosen from the amount of data and the time, each choice with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clearhead.config import PRESETS, merge

LENGTH = ("steps", "epochs", "minutes")
# Rules of thumb, not fitted to measurements. (up to so many pairs, value): small corpora overfit large vocabularies.
VOCABULARIES = ((2_000, 1_000), (10_000, 3_000), (60_000, 6_000), (300_000, 10_000), (2_000_000, 16_000))
LARGEST_VOCABULARY = 32_000
DROPOUTS = ((60_000, 0.3), (200_000, 0.2))
LARGEST_DROPOUT_FREE = 0.1
SMALL_PAIRS = 100_000  # from here on the data feeds preset small ...
BASE_PAIRS = 2_000_000  # ... and from here on the paper's base model
SMALL_MINUTES = 60  # below this preset small sees the data too rarely on two cores
BASE_MINUTES = 24 * 60


@dataclass(frozen=True)
class AutoConfig:
    """Settings, and why."""

    preset: str
    settings: dict[str, Any]
    reasons: list[str]


def choose_config(
    pairs: int, noun: str, given: Mapping[str, Any], preset: str, *, is_start: bool = False, has_text: bool = True
) -> AutoConfig:
    """Settings for a corpus of that many examples; what is in `given` or in a named preset is left as it is.

    `is_start`: training starts from a model, whose shape and tokenizer are kept. `has_text`: there is a tokenizer.
    """
    lengths = {key: float(given.get("training", {}).get(key, 0)) for key in LENGTH}
    minutes = lengths["minutes"]
    reasons, settings = [], dict[str, Any]()
    fixed = merge(PRESETS.get(preset, {}), given)

    def set_unless_given(section: str, field: str, value: object, reason: str) -> None:
        if field not in fixed.get(section, {}):
            nonlocal settings
            settings = merge(settings, {section: {field: value}})
            reasons.append(f"{section}.{field}={value}: {reason}")

    if not preset and not is_start:
        preset, reason = _size(pairs, noun, minutes)
        reasons.append(f"preset {preset}: {reason}")
        rate = _by_size(DROPOUTS, pairs, LARGEST_DROPOUT_FREE)
        set_unless_given("model", "dropout", rate, f"{pairs:,} {noun} {'overfit soon' if rate > 0.1 else 'are many'}")
    if has_text and not is_start and given.get("tokenizer", {}).get("kind") not in ("pretokenized", "char"):
        size = _by_size(VOCABULARIES, pairs, LARGEST_VOCABULARY)
        set_unless_given("tokenizer", "vocab_size", size, f"fits {pairs:,} {noun}")
    if pairs < 10_000:
        set_unless_given("training", "batch_tokens", 2048, "small corpora need more updates")
    else:
        set_unless_given("training", "batch_tokens", 4096, "the usual; enough for two cores")
    if not any(lengths.values()):
        set_unless_given("training", "epochs", default_epochs(pairs), "no time was given; --minutes sets it")
        set_unless_given("training", "patience", 5, "stops when five validations in a row bring no gain")
    return AutoConfig(preset, settings, reasons)


def default_epochs(pairs: int) -> int:
    """Return the passes over the data that a run without a length makes, unless validations bring no gain before."""
    return min(60, max(5, 1_000_000 // pairs))


def without_length(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without a length that is 0, which is the same as none."""
    training = given.get("training", {})
    if any(float(training.get(key, 0)) for key in LENGTH):
        return dict(given)
    return {**given, "training": {key: value for key, value in training.items() if key not in LENGTH}}


def _size(pairs: int, noun: str, minutes: float) -> tuple[str, str]:
    if pairs >= BASE_PAIRS and minutes >= BASE_MINUTES:
        return "paper-base", f"{pairs:,} {noun} and a day or more feed the paper's base model"
    if pairs >= SMALL_PAIRS and (not minutes or minutes >= SMALL_MINUTES):
        return "small", f"{pairs:,} {noun} feed 3+3 layers of width 256"
    if pairs >= SMALL_PAIRS:
        return "tiny", f"{minutes:g} minutes are too short for a larger one to see {pairs:,} {noun} often enough"
    return "tiny", f"{pairs:,} {noun} would be learned by heart by a larger one"


def _by_size(table: tuple[tuple[int, Any], ...], pairs: int, otherwise: Any) -> Any:
    return next((value for limit, value in table if pairs < limit), otherwise)
