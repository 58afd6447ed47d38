"""Every task by its name: the one place that knows them all."""

from clearhead.errors import ConfigError
from clearhead.tasks.caption import Caption
from clearhead.tasks.classify import Classification
from clearhead.tasks.denoise import Denoising
from clearhead.tasks.embed import Embedding
from clearhead.tasks.image import Image
from clearhead.tasks.language import LanguageModelling
from clearhead.tasks.masked import MaskedLanguage
from clearhead.tasks.tag import Tagging
from clearhead.tasks.task import Purpose
from clearhead.tasks.translate import Translation

_ALL: tuple[Purpose, ...] = (
    Translation(),
    Classification(),
    Tagging(),
    LanguageModelling(),
    MaskedLanguage(),
    Denoising(),
    Image(),
    Caption(),
    Embedding(),
)
PURPOSES: dict[str, Purpose] = {purpose.name: purpose for purpose in _ALL}


def purpose(name: str) -> Purpose:
    """The purpose of that name."""
    if name not in PURPOSES:
        raise ConfigError(f"unknown task {name!r}; there are {', '.join(PURPOSES)}.")
    return PURPOSES[name]
