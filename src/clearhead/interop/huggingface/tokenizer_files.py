"""A tokenizer of ours as the files that `transformers` and `tokenizers` read."""

import json
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Pipeline

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.imported import ImportedTokenizer

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
OWN_FILE = "clearhead_tokenizer.json"
"""A tokenizer that `transformers` cannot hold in one file, in clearhead's format, for `clearhead import`."""
SECTION = "clearhead"
"""Key in tokenizer_config.json with the settings of a tokenizer that clearhead trained."""


def tokenizer_files(tokenizer: Tokenizer, config: Config) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the content of each file by its name, and notes on what could not be included."""
    if _has_several_parts(tokenizer):
        note = f"the tokenizer was imported from several files, which one {FILE} cannot hold: copy the old files for "
        return {OWN_FILE: json.loads(tokenizer.to_json())}, [f"{note}transformers; `clearhead import` reads {OWN_FILE}"]
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.model.max_positions,
        "clean_up_tokenization_spaces": False,
        **_roles(tokenizer, config),
    }
    if not isinstance(tokenizer, ImportedTokenizer):
        settings[SECTION] = json.loads(tokenizer.to_json())["clearhead"]
    return {FILE: json.loads(framed_pipeline(tokenizer, config)), SETTINGS: settings}, []


def framed_pipeline(tokenizer: Tokenizer, config: Config) -> str:
    """Return tokenizer.json of the `tokenizers` library, which adds the special tokens that the network expects."""
    state = json.loads(tokenizer.to_json())["tokenizer"]
    pipeline = Pipeline.from_str(json.dumps(state))
    if not isinstance(tokenizer, ImportedTokenizer):
        # The normalizer puts a space before a text. A normalized mask token is matched with that space, so that the
        # text after it is not normalized a second time: "A <mask>." keeps "." where it would become " .".
        specials = [tokenizer.token(index) for index in tokenizer.special_ids]
        mask = None if tokenizer.mask_id is None else tokenizer.token(tokenizer.mask_id)
        pipeline.add_special_tokens([AddedToken(name, special=True, normalized=name == mask) for name in specials])
    if pipeline.post_processor is None:
        pipeline.post_processor = _frame(tokenizer, config)
    return pipeline.to_str()


def _has_several_parts(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer was imported from several files: two sides, or a pipeline with other ids than the model."""
    if not isinstance(tokenizer, ImportedTokenizer):
        return False
    own = tokenizer.vocabulary
    return bool(own.ids or own.pieces or own.prefix) or tokenizer.target is not tokenizer


def _roles(tokenizer: Tokenizer, config: Config) -> dict[str, str]:
    """The special pieces by their names for them."""
    ids = {"pad_token": tokenizer.pad_id, "unk_token": tokenizer.unk_id, "eos_token": tokenizer.eos_id}
    if config.model.family == "encoder":
        ids |= {"cls_token": tokenizer.bos_id, "sep_token": tokenizer.eos_id}
        del ids["eos_token"]
    elif tokenizer.bos_id != tokenizer.pad_id:
        ids["bos_token"] = tokenizer.bos_id
    if tokenizer.mask_id is not None:
        ids["mask_token"] = tokenizer.mask_id
    return {role: tokenizer.token(index) for role, index in ids.items() if 0 <= index < tokenizer.vocab_size}


def _frame(tokenizer: Tokenizer, config: Config) -> Any:
    """Return the post-processor that adds the special tokens around a text, or None if there are none."""
    begin, end = ((tokenizer.token(index), index) for index in (tokenizer.bos_id, tokenizer.eos_id))
    if config.model.head != "generation":
        return processors.TemplateProcessing(single=f"{begin[0]} $A {end[0]}", special_tokens=[begin, end])
    if config.model.family == "transformer":
        return processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    if config.decoding.sampling.add_start_token and not isinstance(tokenizer, ImportedTokenizer):
        return processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return None
