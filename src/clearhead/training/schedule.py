"""The learning rate at each update (section 5.3)."""

from dataclasses import dataclass

from clearhead.config import TrainingConfig


@dataclass(frozen=True)
class Schedule:
    """Linear warmup to the peak, then 1/sqrt(step), and in a last share of a run of known length down to zero.

    With peak D^-0.5 * warmup^-0.5 and no cooldown it is the paper's D^-0.5 * min(step^-0.5, step * warmup^-1.5).
    """

    peak: float
    warmup: int
    steps: int
    cooldown: float

    @classmethod
    def fit(cls, config: TrainingConfig, model_dim: int, steps: int) -> "Schedule":
        """The schedule of a run of that many updates; its warmup never takes more than a quarter of it."""
        warmup = max(1, min(config.warmup, steps // 4) if steps else config.warmup)
        peak = config.learning_rate or (model_dim * max(1, config.warmup)) ** -0.5
        return cls(peak, warmup, steps, config.cooldown)

    def rate(self, step: int) -> float:
        """The learning rate of update `step`, counted from 1."""
        rate: float = self.peak * min(step / self.warmup, (self.warmup / step) ** 0.5)
        falling = self.steps * self.cooldown
        left = self.steps - step + 1
        return rate * min(1.0, left / falling) if falling >= 1 else rate
