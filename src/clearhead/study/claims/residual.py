"""C10: residual connections and layer norm are what lets the stack train deep.

B batch, T tokens, V vocabulary
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import TrainingError
from clearhead.evaluation.perplexity import PerplexityReport
from clearhead.study.claims.parallelism import sweep
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import (
    VOCAB_SIZE,
    grammar_examples,
    random_ids,
    train_model,
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
)

PRE_NORM = "pre-norm"
STACKS: dict[str, dict[str, Any]] = {
    PRE_NORM: {},
    "post-norm": {"norm_placement": "post"},
    "no norm": {"norm": "none"},
    "no skip": {"residual": False},
    "neither": {"residual": False, "norm": "none"},
    "rms norm": {"norm": "rms"},
    "group norm": {"norm": "group"},
    "batch norm": {"norm": "batch"},
}
VOCABULARY_SIZE = 500


def _deep(seen: SeedNumbers, stack: str) -> float:
    """The loss at the greatest depth."""
    row = sweep(seen[stack], "nats")
    return row[max(row)]


def _deeper(seen: SeedNumbers, stack: str) -> float:
    """What the greatest depth costs against the smallest."""
    row = sweep(seen[stack], "nats")
    return row[max(row)] - row[min(row)]


# In nats a token: 0.2 is a fifth of the perplexity and plainly worse, 0.02 is one fiftieth and as good as equal. A
# stack "trains deep" where depth costs at most a tenth of a nat; where it costs half a nat it does not.
RULE = DecisionRule(
    (
        Requirement("with both, the deepest stack trains about as well as the shallowest (nats that depth costs)",
                    lambda seen: _deeper(seen, PRE_NORM), 0.1, 0.5, "a tenth of a nat is about as well, half is not"),
        Requirement("without residual connections the deepest stack is worse (nats)",
                    lambda seen: _deep(seen, "no skip") - _deep(seen, PRE_NORM), 0.2, 0.02, "a fifth of the perplexity"),
        Requirement("without norm the deepest stack is worse (nats)",
                    lambda seen: _deep(seen, "no norm") - _deep(seen, PRE_NORM), 0.2, 0.02, "a fifth of the perplexity"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "residual",
    "C10",
    "Residual connections and layer norm are what lets the stack train deep",
    RULE,
    "One learning rate for all, and few updates: a stack that is slow here may get there with more care.",
)


@dataclass(frozen=True)
class ResidualStudy:
    """Language models of growing depth, with parts of the residual connection left out."""

    about: StudyInfo = ABOUT
    minutes: float = 8.0
    seeds: int = 2
    depths: tuple[int, ...] = (2, 8, 24)
    steps: int = 150  # at the default number of minutes
    sentences: int = 4000
    width: int = 32

    @property
    def conditions(self) -> tuple[str, ...]:
        """What stands around each sub-layer."""
        return tuple(STACKS)

    @property
    def columns(self) -> Mapping[str, str]:
        """Loss by depth, and the gradient at the start."""
        return {f"nats@{depth}": f"nats, {depth} layers" for depth in self.depths} | {
            f"gradient@{self.depths[-1]}": f"gradient, first / last of {self.depths[-1]} layers"
        }

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """A training of as many updates at each depth; updates go with the time that was asked for."""
        usual = cell_minutes(self, condition, self.minutes)
        steps = max(2, round(self.steps * bench.minutes / usual))
        files = [bench.folder / "train.txt", bench.folder / "test.txt"]
        for file, split in zip(files, ("train", "test"), strict=True):
            count = self.sentences if split == "train" else max(20, self.sentences // 20)
            file.write_text(
                "".join(f"{one.source}\n" for one in grammar_examples(count, seed, split)), encoding="utf-8"
            )
        found: dict[str, float] = {}
        for depth in self.depths:
            shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4, **STACKS[condition],
                     "num_decoder_layers": depth}  # fmt: skip
            found[f"nats@{depth}"] = self._trained(bench, files, seed, shape, steps)
            found[f"gradient@{depth}"] = first_to_last_gradient({**shape, "dropout": 0.0}, seed)
        return found

    def _trained(
        self, bench: StudyContext, files: list[Path], seed: int, shape: Mapping[str, Any], steps: int
    ) -> float:
        """Loss on other text; where training breaks down, that of a model that knows nothing."""
        data = {"document_unit": "line", "max_tokens": 64, "validation_max": 50}
        tokenizer = {"vocab_size": VOCABULARY_SIZE}
        try:
            model = train_model(
                bench, files[0], seed, shape, task="lm", steps=steps, data=data, tokenizer=tokenizer,
                training={"batch_tokens": 1024},
            )  # fmt: skip
        except TrainingError:
            return math.log(VOCABULARY_SIZE)
        report = model.evaluate_files([files[1]])
        assert isinstance(report, PerplexityReport)
        return report.nats if math.isfinite(report.nats) else math.log(VOCABULARY_SIZE)

    def charts(self, found: Findings) -> list[Chart]:
        """Loss and gradient by depth."""

        def series(name: str) -> list[Series]:
            return [Series(stack, [(depth, found.values(stack, f"{name}@{depth}")) for depth in self.depths])
                    for stack in STACKS]  # fmt: skip

        return [
            Chart("residual", "Loss after equal updates", "layers", "nats a token (lower is better)", series("nats"),
                  log_y=True),
            Chart("residual-gradient", "Gradient of the first layer / of the last, fresh weights", "layers", "ratio",
                  series("gradient"), log_y=True),
        ]  # fmt: skip


def first_to_last_gradient(shape: Mapping[str, Any], seed: int) -> float:
    """The norm of the gradient of the first layer's queries, keys and values, against that of the last layer's."""
    network = untrained_network("lm", seed, shape).double().train()
    ids_BT = random_ids(4, 16, seed)
    logits_BTV = network.logits(network(ids_BT[:, :-1]))
    loss = -logits_BTV.log_softmax(-1).gather(2, ids_BT[:, 1:, None]).mean()
    assert logits_BTV.shape[-1] == VOCAB_SIZE
    loss.backward()
    norms = [_gradient_norm(layer.self_attention) for layer in network.decoder.layers]
    return max(norms[0], 1e-30) / max(norms[-1], 1e-30)  # a logarithm has no zero


def _gradient_norm(attention: Any) -> float:
    projections = (attention.query, attention.key, attention.value)
    return math.hypot(*(float(each.weight.grad.norm()) for each in projections))
