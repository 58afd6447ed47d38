"""The base of all settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all settings: frozen, and a typing mistake in a key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
