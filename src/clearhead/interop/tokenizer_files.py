"""A tokenizer of ours as the files that `transformers` reads."""

import json
from typing import Any

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Pipeline

from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.imported import ImportedTokenizer

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def tokenizer_files(tokenizer: Tokenizer, config: Config) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The content of each file by its name, and what could not come along."""
    if isinstance(tokenizer, ImportedTokenizer) and (tokenizer.vocabulary.ids or tokenizer.target is not tokenizer):
        return {}, ["the tokenizer was made of several files, which one tokenizer.json cannot hold; copy the old files"]
    state = json.loads(tokenizer.to_json())["tokenizer"]
    pipeline = Pipeline.from_str(json.dumps(state))
    roles = _roles(tokenizer, config)
    specials = [tokenizer.piece(index) for index in tokenizer.special_ids if index < tokenizer.vocab_size]
    added = {token["content"] for token in state["added_tokens"]}
    if not isinstance(tokenizer, ImportedTokenizer):
        pipeline.add_special_tokens([AddedToken(name, special=True) for name in specials if name not in added])
    if pipeline.post_processor is None:
        pipeline.post_processor = _frame(tokenizer, config)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.model.max_positions,
        "clean_up_tokenization_spaces": False,
        **roles,
    }
    return {FILE: json.loads(pipeline.to_str()), SETTINGS: settings}, []


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
    return {role: tokenizer.piece(index) for role, index in ids.items() if 0 <= index < tokenizer.vocab_size}


def _frame(tokenizer: Tokenizer, config: Config) -> Any:
    """What stands around a text when a network of this family reads it."""
    begin, end = ((tokenizer.piece(index), index) for index in (tokenizer.bos_id, tokenizer.eos_id))
    if config.model.family == "encoder":
        return processors.TemplateProcessing(single=f"{begin[0]} $A {end[0]}", special_tokens=[begin, end])
    if config.model.family == "transformer":
        return processors.TemplateProcessing(single=f"$A {end[0]}", special_tokens=[end])
    return None
