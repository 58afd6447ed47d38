"""Settings of a run: one frozen, validated class per section; unknown keys are errors.

`model`, `data`, `training` and `decoding` define the sections; `build` defines the presets and combines them with
recipes and the user's settings. The description of a field is also its help text; the command line sets any field with
`--set model.dropout=0.3`. Imports `errors` only.
"""

from clearhead.config.base import Section
from clearhead.config.build import PRESETS, Config, build, merge, override, override_decoding, parse, parse_assignments
from clearhead.config.data import (
    BYTE_TOKEN_PATTERN,
    SPECIAL_TOKEN_PATTERN,
    SPECIAL_TOKENS,
    TAG_PATTERN,
    DataConfig,
    TokenizerConfig,
)
from clearhead.config.decoding import DecodingConfig
from clearhead.config.model import RECURRENT, ModelConfig
from clearhead.config.training import TrainingConfig

__all__ = [
    "BYTE_TOKEN_PATTERN",
    "PRESETS",
    "RECURRENT",
    "SPECIAL_TOKENS",
    "SPECIAL_TOKEN_PATTERN",
    "TAG_PATTERN",
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
