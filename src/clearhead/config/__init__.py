"""Every setting of a run: typed, frozen, checked when built, and unknown keys are errors.

One class a stage. A new knob is a field with a one-line description, which is also its help text; the CLI sets any
of them with `--set model.dropout=0.3`. Presets are plain dictionaries laid under what the user gives.
"""

from clearhead.config.building import Config, build, merge, override, override_decoding, parse, parse_assignments
from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import RECURRENT, ModelConfig
from clearhead.config.presets import PRESETS
from clearhead.config.section import Section
from clearhead.config.tokenizer import BYTE_FORM, SPECIAL_FORM, SPECIALS, TokenizerConfig
from clearhead.config.training import TAG_FORM, DataConfig, TrainingConfig

__all__ = [
    "BYTE_FORM",
    "PRESETS",
    "RECURRENT",
    "SPECIALS",
    "SPECIAL_FORM",
    "TAG_FORM",
    "Config",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "Section",
    "TokenizerConfig",
    "TrainingConfig",
    "build",
    "merge",
    "override",
    "override_decoding",
    "parse",
    "parse_assignments",
]
