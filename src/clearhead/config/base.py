"""Base class of all configuration sections."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Frozen settings with finite numbers; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
