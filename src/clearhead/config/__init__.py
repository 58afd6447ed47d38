"""Settings of a run: one frozen, validated class per stage; unknown keys are errors.

A new setting is a field with a one-line description, which is also its help text; the command line sets any field with
`--set model.dropout=0.3`. Presets are dictionaries that the user's settings override.
"""

from clearhead.config.base import Section
from clearhead.config.build import PRESETS, Config, build, merge, override, override_decoding, parse, parse_assignments
from clearhead.config.data import BYTE_FORM, SPECIAL_FORM, SPECIAL_TOKENS, TAG_FORM, DataConfig, TokenizerConfig
from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import RECURRENT, ModelConfig
from clearhead.config.training import TrainingConfig

__all__ = [
    "BYTE_FORM",
    "PRESETS",
    "RECURRENT",
    "SPECIAL_FORM",
    "SPECIAL_TOKENS",
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
