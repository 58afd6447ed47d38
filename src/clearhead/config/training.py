"""Settings of training."""

from typing import Literal

from pydantic import Field

from clearhead.config.base import Section

ScheduleForm = Literal["inverse_sqrt", "cosine", "none"]


class TrainingConfig(Section):
    """Settings of training: length, batches, optimizer, learning rate, validation."""

    seed: int = Field(1, ge=0, description="random seed of initialization, data order and dropout")
    steps: int = Field(0, ge=0, description="number of updates; 0: set by epochs or minutes")
    epochs: float = Field(0, ge=0, description="passes over the data; 0: set by steps or minutes")
    minutes: float = Field(0, ge=0, description="training time in minutes; 0: set by steps or epochs")
    batch_tokens: int = Field(
        4096, ge=1, description="maximum number of tokens per batch, source or target, with padding"
    )
    gradient_accumulation: int = Field(1, ge=1, description="batches per update")
    learning_rate: float = Field(0.0, ge=0, description="peak learning rate; 0: the paper's, from model_dim and warmup")
    warmup: int = Field(
        4000, ge=0, description="updates until the learning rate reaches its peak; at most a quarter of the run"
    )
    schedule: ScheduleForm = Field(
        "inverse_sqrt",
        description="learning rate after warmup: inverse_sqrt as in the paper, cosine, or none (constant)",
    )
    cooldown: float = Field(
        0.0, ge=0, le=1, description="fraction of the updates, at the end, in which the learning rate falls to zero"
    )
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="probability mass distributed evenly over the vocabulary"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam: decay rate of the first moment")
    adam_beta2: float = Field(0.98, ge=0, lt=1, description="Adam: decay rate of the second moment")
    adam_epsilon: float = Field(1e-9, gt=0, description="Adam: epsilon in the denominator")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    clip_norm: float = Field(1.0, ge=0, description="maximum norm of the gradient; 0: no clipping")
    validate_every: int = Field(0, ge=0, description="updates between validations; 0: chosen from the run's length")
    save_every: int = Field(0, ge=0, description="updates between checkpoints; 0: at every validation")
    validate_lines: int = Field(
        500, ge=1, description="text generation: number of validation examples decoded for the score"
    )
    patience: int = Field(0, ge=0, description="validations without improvement before early stopping; 0: never")
    average_checkpoints: int = Field(5, ge=1, description="number of last checkpoints averaged at the end")
    ema_decay: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of an exponential moving average of the weights, such as 0.999, a candidate for the final "
        "weights; 0: none",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="precision of matrix products in training; weights, sums and saved files stay float32"
    )
    activation_checkpointing: bool = Field(
        False, description="Transformers: recompute layers in the backward pass instead of storing them, to save memory"
    )
    sharding: Literal["none", "full"] = Field(
        "none", description="full: weights, gradients and optimizer state are divided among the processes (FSDP)"
    )
    max_nonfinite_steps: int = Field(
        20, ge=1, description="consecutive updates with a non-finite loss or gradient before training fails"
    )
