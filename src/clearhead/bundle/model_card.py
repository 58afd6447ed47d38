"""The model card, README.md of a bundle, generated from the manifest and the config only."""

from collections.abc import Mapping

from clearhead.bundle.manifest import WEIGHTS, Manifest

_KINDS = {
    "best": "those with the best score on the validation data",
    "averaged": "an average of several checkpoints",
    "ema": "an exponential moving average over all updates",
    "last": "those at the end of the training",
    "imported": "those of a checkpoint of another toolkit",
}
_COMMANDS = {
    "translate": "clearhead translate DIR < input.txt",
    "denoise": "clearhead translate DIR < input.txt",
    "classify": "clearhead classify DIR < input.txt",
    "tag": "clearhead tag DIR < input.txt",
    "mlm": 'clearhead fill DIR "The [MASK] sat."',
    "lm": 'clearhead generate DIR "Once"',
    "image": "clearhead classify DIR image.png",
    "caption": "clearhead translate DIR image.png",
    "embed": "clearhead embed DIR < input.txt",
}
MAX_ENTRIES = 40  # entries shown of one fact, such as the counts of labels
_LICENCES = ("licence", "license")


def make_card(manifest: Manifest, config: Mapping[str, object]) -> str:
    """Return the text of `README.md`."""
    size = manifest.files[WEIGHTS].size / 1e6
    training = dict(manifest.training)
    scores, warning = training.pop("scores", None), training.pop("warning", None)
    old = training.pop("old_validation", None)
    sections = [
        "# A clearhead model",
        f"Saved by clearhead {manifest.versions.get('clearhead', 'unknown')} at {manifest.created}. "
        f"The weights ({size:.1f} MB) are {_KINDS[manifest.weights_kind]}.",
        *([f"**Warning:** {warning}."] if isinstance(warning, str) and warning else []),
        "## Run it",
        "With `DIR` the path of this folder:",
        f"```\n{_command(config)}\nclearhead info DIR\n```",
        "## Scores",
        _score_list(scores) if isinstance(scores, Mapping) and scores else "None were recorded.",
        *([_forgetting(old)] if isinstance(old, Mapping) else []),
        "## Model",
        _fact_list(config.get("model")) or "See `config.json`.",
        "## Training",
        _fact_list(training) or "No summary was recorded.",
        "## Data",
        _fact_list(manifest.data) or "No fingerprint was recorded.",
    ]
    if not any(name in manifest.data for name in _LICENCES):
        sections.append(
            "The licence of the training data is not recorded. Check it before you share this model: it may also apply "
            "to models trained on the data."
        )
    return "\n\n".join(sections) + "\n"


def _command(config: Mapping[str, object]) -> str:
    """Return the command that runs the model."""
    command = _COMMANDS.get(str(config.get("task", "translate")), "clearhead --help")
    data = config.get("data")
    tags = data.get("source_tags") if isinstance(data, Mapping) else None
    return command.replace("DIR", f"DIR --tag {tags[0]}") if isinstance(tags, list | tuple) and tags else command


def _score_list(scores: Mapping[str, object]) -> str:
    """Return one line per score, with its signature."""
    lines = []
    for name, score in scores.items():
        if isinstance(score, Mapping) and "signature" not in score:
            facts = [f"{key} {_format(value)}" for key, value in score.items() if value not in (None, "")]
            lines.append(f"- {name}: {', '.join(facts)}")
        elif isinstance(score, Mapping):
            lines.append(f"- {name}: {_format(score.get('score'))} ({_code(score.get('signature'))})")
        elif score is not None:
            lines.append(f"- {name}: {_format(score)}")
    return "\n".join(lines)


def _forgetting(old: Mapping[str, object]) -> str:
    """Return a sentence with the scores before and after fine-tuning, on the pretrained model's validation set."""
    return (
        f"On the validation set of the model that it was fine-tuned from ({_format(old.get('records'))} records): "
        f"{old.get('score')} {_format(old.get('before'))} before, {_format(old.get('after'))} after."
    )


def _fact_list(facts: object) -> str:
    """Return one line per scalar, also of nested mappings one level down; deeper values are only in the JSON files."""
    if not isinstance(facts, Mapping):
        return ""
    lines = []
    for name, fact in facts.items():
        if isinstance(fact, Mapping):
            nested = [f"- {name}.{key}: {_format(value)}" for key, value in fact.items() if _is_scalar(value)]
            lines += nested[:MAX_ENTRIES]
            if len(nested) > MAX_ENTRIES:
                lines.append(f"- {name}: {len(nested) - MAX_ENTRIES:,} more in `manifest.json`")
        elif isinstance(fact, list | tuple) and fact and all(_is_scalar(item) for item in fact):
            lines.append(f"- {name}: {', '.join(_format(item) for item in fact)}")
        elif _is_scalar(fact):
            lines.append(f"- {name}: {_format(fact)}")
    return "\n".join(lines)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float)


def _format(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.4g}"
    return _code(value) if isinstance(value, str) else "not recorded"


def _code(value: object) -> str:
    """Return a text as Markdown code, so that Markdown in it has no effect."""
    text = " ".join(str(value).split()).replace("`", "'")
    return f"`{text}`" if text else "(empty)"
