"""Bodies of HTTP requests; unknown fields are rejected."""

from pydantic import BaseModel, ConfigDict, Field


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="name of a model, as listed by /v1/models; default: the first model")


class TranslateRequest(_RequestBody):
    """Texts to translate."""

    text: str | list[str] = Field(description="one text, or a list of texts")
    beam_size: int | None = Field(None, description="beam size; default: the model's")
    length_penalty: float | None = Field(None, ge=0, le=10, description="exponent of the length penalty")
    n_best: int = Field(1, ge=1, description="number of translations of each text")


class TraceRequest(_RequestBody):
    """An input to trace, and the output to force or the settings of the search."""

    text: str = Field("", description="input text")
    image: str | None = Field(None, description="input image as a PNG in base64, for a model that reads images")
    target: str | None = Field(None, description="output text or label to force; default: found by search")
    tokens: list[int] | None = Field(
        None, description="output token ids to force, for example the path to a node of the beam tree"
    )
    prefix: list[int] | None = Field(None, description="first token ids of the output; search finds the rest")
    hypothesis: int = Field(0, ge=0, description="index of the hypothesis to trace; 0 is the best")
    beam_size: int | None = Field(None, description="beam size; default: the model's")
    length_penalty: float | None = Field(None, ge=0, le=10, description="exponent of the length penalty")
    ablated: list[str] = Field([], max_length=256, description="heads and sub-layers to ablate: cross.1.0, encoder.0")
    positions: bool = Field(True, description="false: ablate the position encodings")


class AblationRequest(_RequestBody):
    """Heads and sub-layers to ablate in the model of a trace."""

    trace: str = Field(description="id of a trace")
    ablated: list[str] = Field(min_length=1, max_length=256, description="heads and sub-layers: cross.1.0, encoder.0")
