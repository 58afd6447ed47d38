"""The base of all settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of all settings: frozen, and a typing mistake in a key is an error. Numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
