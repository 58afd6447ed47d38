"""What may be asked: the bodies of requests, typed; unknown fields are errors."""

from pydantic import BaseModel, ConfigDict, Field


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="name of a model, as in /v1/models; the first if left out")


class TranslateRequest(_Body):
    """Texts to translate."""

    text: str | list[str] = Field(description="one text, or several")
    beam_size: int | None = Field(None, description="beam size; default: the model's")
    length_penalty: float | None = Field(None, ge=0, le=10, description="exponent of the length penalty")
    n_best: int = Field(1, ge=1, description="translations of each text")


class TraceRequest(_Body):
    """An input to look into a model with."""

    text: str = Field("", description="what the model reads")
    picture: str | None = Field(None, description="a PNG in base64, for a model that reads pictures")
    target: str | None = Field(None, description="what it is made to write; found by search if left out")
    tokens: list[int] | None = Field(
        None, description="ids to be written exactly so, such as a node's of the beam tree"
    )
    prefix: list[int] | None = Field(None, description="ids to be written first; search goes on behind them")
    hypothesis: int = Field(0, ge=0, description="which of the found ones is looked at, best first")
    beam_size: int | None = Field(None, description="beam size; default: the model's")
    length_penalty: float | None = Field(None, ge=0, le=10, description="exponent of the length penalty")
    off: list[str] = Field([], max_length=256, description="heads and sub-layers switched off: cross.1.0, encoder.0")
    positions: bool = Field(True, description="false: all places look alike to the model")


class AblationRequest(_Body):
    """Parts to switch off in the run of a trace."""

    trace: str = Field(description="id of a trace")
    off: list[str] = Field(min_length=1, max_length=256, description="heads and sub-layers: cross.1.0, encoder.0")
