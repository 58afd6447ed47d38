"""C10: residual connections and layer normalization make deep stacks trainable.

B batch, T tokens, V vocabulary
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import TrainingError
from clearhead.evaluation.perplexity import PerplexityReport
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import (
    VOCAB_SIZE,
    grammar_examples,
    random_ids,
    train_model,
    transformer_shape,
    untrained_network,
)
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    cell_minutes,
    first_and_last,
)

PRE_NORM, NO_NORM, NO_RESIDUAL = "pre-norm", "no norm", "no residual"
STACKS: dict[str, dict[str, Any]] = {
    PRE_NORM: {},
    "post-norm": {"norm_placement": "post"},
    NO_NORM: {"norm": "none"},
    NO_RESIDUAL: {"residual": False},
    "no residual, no norm": {"residual": False, "norm": "none"},
    "rms norm": {"norm": "rms"},
    "group norm": {"norm": "group"},
    "batch norm": {"norm": "batch"},
}
TRAINED_VOCAB_SIZE = 500


def _cost_of_depth(runs: SeedNumbers) -> float:
    """Return the loss of the deepest minus the shallowest stack, with both parts."""
    shallowest, deepest = first_and_last(runs[PRE_NORM], "nats")
    return deepest - shallowest


def _cost_of_removal(runs: SeedNumbers, stack: str) -> float:
    """Return the loss of the deepest stack without a part minus that with both parts."""
    return first_and_last(runs[stack], "nats")[1] - first_and_last(runs[PRE_NORM], "nats")[1]


# In nats per token: 0.2 is a fifth of the perplexity and clearly worse, 0.02 is a fiftieth and practically equal. A
# stack is trainable if depth costs at most a tenth of a nat, and is not if it costs half a nat.
RULE = DecisionRule(
    (
        Requirement("with both, the deepest stack trains about as well as the shallowest (nats lost by depth)",
                    _cost_of_depth, 0.1, 0.5, "a tenth of a nat is about as good, half a nat is not"),
        Requirement("without residual connections the deepest stack is worse (nats)",
                    lambda runs: _cost_of_removal(runs, NO_RESIDUAL), 0.2, 0.02, "a fifth of the perplexity"),
        Requirement("without norm the deepest stack is worse (nats)",
                    lambda runs: _cost_of_removal(runs, NO_NORM), 0.2, 0.02, "a fifth of the perplexity"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "residual",
    "C10",
    "Residual connections and layer norm make deep stacks trainable",
    RULE,
    "One learning rate for all and few updates: a stack that trains slowly here may succeed with more tuning.",
)


@dataclass(frozen=True)
class ResidualStudy:
    """Language models of increasing depth without residual connections, without norm, and with other norms."""

    info: StudyInfo = INFO
    minutes: float = 8.0
    seeds: int = 2
    depths: tuple[int, ...] = (2, 8, 24)
    steps: int = 150  # at the default number of minutes
    sentences: int = 4000
    width: int = 32

    @property
    def conditions(self) -> tuple[str, ...]:
        """Variants of the residual block."""
        return tuple(STACKS)

    @property
    def columns(self) -> Mapping[str, str]:
        """Loss by depth, and the gradient ratio before training."""
        return {f"nats@{depth}": f"nats, {depth} layers" for depth in self.depths} | {
            f"gradient_ratio@{self.depths[-1]}": f"gradient, first / last of {self.depths[-1]} layers"
        }

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train for the same number of updates at each depth, in proportion to the requested time."""
        default_minutes = cell_minutes(self, condition, self.minutes)
        steps = max(2, round(self.steps * context.minutes / default_minutes))
        files = [context.folder / "train.txt", context.folder / "test.txt"]
        for file, split in zip(files, ("train", "test"), strict=True):
            count = self.sentences if split == "train" else max(20, self.sentences // 20)
            lines = [f"{example.source}\n" for example in grammar_examples(count, seed, split)]
            file.write_text("".join(lines), encoding="utf-8")
        numbers: dict[str, float] = {}
        for depth in self.depths:
            shape = transformer_shape(self.width, 0, depth, **STACKS[condition])
            numbers[f"nats@{depth}"] = self._test_loss(context, files, seed, shape, steps)
            numbers[f"gradient_ratio@{depth}"] = first_to_last_gradient({**shape, "dropout": 0.0}, seed)
        return numbers

    def _test_loss(
        self, context: StudyContext, files: list[Path], seed: int, shape: Mapping[str, Any], steps: int
    ) -> float:
        """Train one model and return its test loss, or that of a uniform distribution if training diverges."""
        data = {"document_unit": "line", "max_tokens": 64, "validation_max": 50}
        tokenizer = {"vocab_size": TRAINED_VOCAB_SIZE}
        try:
            model = train_model(
                context, files[0], seed, shape, task="lm", steps=steps, data=data, tokenizer=tokenizer,
                training={"batch_tokens": 1024},
            )  # fmt: skip
        except TrainingError:
            return math.log(TRAINED_VOCAB_SIZE)
        report = model.evaluate_files([files[1]])
        assert isinstance(report, PerplexityReport)
        return report.nats if math.isfinite(report.nats) else math.log(TRAINED_VOCAB_SIZE)

    def charts(self, findings: Findings) -> list[Chart]:
        """Return loss and gradient ratio by depth."""

        def series(name: str) -> list[Series]:
            return [findings.sweep_series(stack, name, self.depths) for stack in STACKS]

        return [
            Chart("residual", "Loss after equal updates", "layers", "nats per token (lower is better)", series("nats"),
                  log_y=True),
            Chart("residual-gradient", "Gradient of the first layer / of the last, untrained weights", "layers",
                  "ratio", series("gradient_ratio"), log_y=True),
        ]  # fmt: skip


def first_to_last_gradient(shape: Mapping[str, Any], seed: int) -> float:
    """Return the gradient norm of the first layer's attention projections relative to the last layer's."""
    network = untrained_network("lm", seed, shape).double().train()
    ids_BT = random_ids(4, 16, seed)
    logits_BTV = network.logits(network(ids_BT[:, :-1]))
    loss = -logits_BTV.log_softmax(-1).gather(2, ids_BT[:, 1:, None]).mean()
    assert logits_BTV.shape[-1] == VOCAB_SIZE
    loss.backward()
    norms = [_gradient_norm(layer.self_attention) for layer in network.decoder.layers]
    return max(norms[0], 1e-30) / max(norms[-1], 1e-30)  # positive, because the chart has a logarithmic axis


def _gradient_norm(attention: Any) -> float:
    projections = (attention.query, attention.key, attention.value)
    return math.hypot(*(float(projection.weight.grad.norm()) for projection in projections))
