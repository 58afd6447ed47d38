"""Key width and number of attention heads.

C8: dividing by sqrt(d_k) prevents the softmax from saturating.
C9: several heads attend to different positions; one head is worse, and too many heads are worse too.

B batch, H heads, T queries, S keys, K head width
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.api import Model
from clearhead.grammar import Example
from clearhead.inspection.analyses.head_importance import head_importance
from clearhead.inspection.analyses.head_statistics import entropy, head_statistics
from clearhead.kernels import AttentionLayout, PaddedLayout
from clearhead.model.attention import attention_weights
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import (
    TOKENIZER,
    grammar_examples,
    nats_per_token,
    random_ids,
    train_model,
    transformer_shape,
    untrained_network,
    write_examples,
)
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    first_and_last,
)

SCALED, UNSCALED = "scaled", "not scaled"


def _entropy_change(runs: SeedNumbers) -> float:
    """Return the entropy at the largest d_k divided by that at the smallest d_k, with scaling."""
    first, last = first_and_last(runs[SCALED], "entropy")
    return last / first


def _unscaled_share(runs: SeedNumbers, name: str) -> float:
    """Return the value at the largest d_k without scaling as a fraction of the value with scaling."""
    return first_and_last(runs[UNSCALED], name)[1] / first_and_last(runs[SCALED], name)[1]


# Queries and keys have independent components of variance 1, as in footnote 4 of the paper. With scaling nothing should
# depend on d_k; 10 % is allowed for sampling noise. Without it, "saturated" means that half of the entropy is lost, and
# the gradient counts as vanished below a third of the scaled one.
SCALING_RULE = DecisionRule(
    (
        Requirement("with scaling, entropy at the largest d_k relative to the smallest", _entropy_change, 0.9, 0.5,
                    "the entropy should not depend on d_k"),
        Requirement("without scaling, entropy at the largest d_k as a fraction of the scaled one",
                    lambda runs: _unscaled_share(runs, "entropy"), 0.5, 0.9,
                    "the softmax counts as saturated if half of the entropy is lost"),
        Requirement("without scaling, gradient through the softmax as a fraction of the scaled one",
                    lambda runs: _unscaled_share(runs, "gradient"), 0.34, 0.9,
                    "the gradient counts as vanished if at most a third remains"),
    )
)  # fmt: skip
SCALING_INFO = StudyInfo(
    "scaling",
    "C8",
    "Dividing by sqrt(d_k) prevents the softmax from saturating and preserves its gradient",
    SCALING_RULE,
    "The rule covers vectors of variance 1. The columns `entropy, untrained network` and `nats after training` show "
    "whether a network starts with such vectors and whether training suffers; the claim does not cover this.",
)


@dataclass(frozen=True)
class AttentionScalingStudy:
    """The softmax with and without scaling by d_k, and one training of each."""

    info: StudyInfo = SCALING_INFO
    minutes: float = 6.0
    seeds: int = 3
    key_dims: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    keys: int = 64
    queries: int = 500
    width: int = 64
    layers: int = 2
    trained_key_dim: int = 256
    train_size: int = 8000

    @property
    def conditions(self) -> tuple[str, ...]:
        """With and without scaling."""
        return (SCALED, UNSCALED)

    @property
    def columns(self) -> Mapping[str, str]:
        """Statistics at the largest d_k, and the loss after training."""
        last = self.key_dims[-1]
        return {f"variance@{last}": f"variance of scores, d_k={last}", f"entropy@{last}": "entropy",
                f"gradient@{last}": "gradient", f"untrained_entropy@{last}": "entropy, untrained network",
                "nats": f"nats after training, d_k={self.trained_key_dim}"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure random vectors and untrained networks at each d_k, and train one model."""
        is_scaled = condition == SCALED
        numbers: dict[str, float] = {}
        for key_dim in self.key_dims:
            statistics = self._softmax_statistics(key_dim, is_scaled, seed)
            numbers |= {f"{name}@{key_dim}": value for name, value in statistics.items()}
            numbers[f"untrained_entropy@{key_dim}"] = self._untrained_entropy(key_dim, is_scaled, seed)
        file = write_examples(context.folder / "train.tsv", grammar_examples(self.train_size, seed))
        settings = self._shape(self.trained_key_dim, is_scaled) | {"num_decoder_layers": self.layers}
        model = train_model(context, file, seed, settings, tokenizer=TOKENIZER)
        test_examples = grammar_examples(max(20, self.train_size // 20), seed, "test")
        return numbers | {"nats": nats_per_token(model, test_examples)}

    def _shape(self, key_dim: int, is_scaled: bool) -> dict[str, Any]:
        return transformer_shape(
            self.width, self.layers, value_dim=self.width // 4, key_dim=key_dim, scale_attention=is_scaled
        )

    def _softmax_statistics(self, key_dim: int, is_scaled: bool, seed: int) -> dict[str, float]:
        """Return score variance, entropy and gradient of the softmax for random queries and keys."""
        generator = torch.Generator().manual_seed(seed)
        q_11TK = torch.randn(1, 1, self.queries, key_dim, generator=generator)
        k_11SK = torch.randn(1, 1, self.keys, key_dim, generator=generator)
        scores_11TS = q_11TK @ k_11SK.transpose(-2, -1) * (key_dim**-0.5 if is_scaled else 1.0)
        scores_11TS.requires_grad_()
        identity_11SS = torch.eye(self.keys)[None, None]  # with the scores as queries this applies only the softmax
        queries, keys = (PaddedLayout.of(length, torch.device("cpu")) for length in (self.queries, self.keys))
        weights_11TS = attention_weights(scores_11TS, identity_11SS, AttentionLayout(queries, keys), scale=1.0)
        v_11TS = torch.randn(weights_11TS.shape, generator=generator)
        [gradient] = torch.autograd.grad((weights_11TS * v_11TS).sum(), scores_11TS)
        return {
            "variance": float(scores_11TS.detach().var()),
            "entropy": entropy(weights_11TS.detach()[0, 0].numpy()),
            "gradient": float(gradient.norm(dim=-1).mean()),
        }

    def _untrained_entropy(self, key_dim: int, is_scaled: bool, seed: int) -> float:
        """Return the attention entropy in the first layer of an untrained network."""
        network = untrained_network("classify", seed, {**self._shape(key_dim, is_scaled), "num_labels": 3})
        with torch.no_grad():
            weights_BHSS = network.backbone(random_ids(2, self.keys, seed), want_attention=True).attention[0]
        return entropy(weights_BHSS.flatten(0, 2).numpy())

    def charts(self, findings: Findings) -> list[Chart]:
        """Return entropy and gradient by d_k."""

        def series(name: str) -> list[Series]:
            return [findings.sweep_series(kind, name, self.key_dims) for kind in self.conditions]

        untrained = [
            Series(f"{untrained_series.label}, untrained network", untrained_series.points)
            for untrained_series in series("untrained_entropy")
        ]
        return [
            Chart("scaling-entropy", f"Entropy of the softmax over {self.keys} keys", "d_k", "nats",
                  [*series("entropy"), *untrained], log_x=True),
            Chart("scaling-gradient", "Gradient through the softmax", "d_k", "norm at the scores", series("gradient"),
                  log_x=True, log_y=True),
        ]  # fmt: skip


ABLATED_PERCENTAGES = (25, 50, 75)  # of the heads


def _nats_above_best(runs: SeedNumbers, end: str) -> float:
    """Return the loss with the "fewest" or "most" heads minus the best loss of the counts in between."""
    nats = {int(count): numbers["nats"] for count, numbers in runs.items()}
    fewest, most = min(nats), max(nats)
    between = [value for count, value in nats.items() if count not in (fewest, most)]
    if not between:
        raise KeyError("fewer than three head counts were measured")
    return nats[fewest if end == "fewest" else most] - min(between)


def _distance_range(runs: SeedNumbers) -> float:
    """Return the difference of the mean attention distances of two heads, in the model with the second most heads."""
    counts = sorted(map(int, runs))
    numbers = runs[str(counts[-2 if len(counts) > 1 else -1])]
    return numbers["max_distance"] - numbers["min_distance"]


# Table 3, rows A, of the paper: perplexity 5.29 with 1 head against 4.91 to 4.92 with 8 and 16 heads (0.07 nats), and
# 5.01 with 32 heads (0.02 nats). Therefore a difference of 0.02 nats counts as worse, and 0 or less as not worse. Heads
# differ if their mean attention distances are 2 positions apart, and are alike within half a position.
HEADS_RULE = DecisionRule(
    (
        Requirement("one head is worse than the best count (nats per token)",
                    lambda runs: _nats_above_best(runs, "fewest"), 0.02, 0.0,
                    "the differences in the paper have this size"),
        Requirement("the largest number of heads is worse than the best count (nats per token)",
                    lambda runs: _nats_above_best(runs, "most"), 0.02, 0.0,
                    "the differences in the paper have this size"),
        Requirement("some heads attend far, some near (difference of their mean distances in one model, in positions)",
                    _distance_range, 2.0, 0.5,
                    "heads that differ by two words see other contexts, by half a word the same"),
    )
)  # fmt: skip
HEADS_INFO = StudyInfo(
    "heads",
    "C9",
    "Several heads attend to different positions (some far, some near); one head is worse, and too many are worse too",
    HEADS_RULE,
    "Model width, cost and training time are the same for each number of heads.",
)


@dataclass(frozen=True)
class HeadCountStudy:
    """A small version of table 3, rows A, of the paper."""

    info: StudyInfo = HEADS_INFO
    minutes: float = 15.0
    seeds: int = 2
    counts: tuple[int, ...] = (1, 2, 4, 8, 16)
    train_size: int = 20_000
    test_size: int = 300
    inspect_size: int = 30
    width: int = 64
    layers: int = 2

    @property
    def conditions(self) -> tuple[str, ...]:
        """Numbers of heads."""
        return tuple(map(str, self.counts))

    @property
    def columns(self) -> Mapping[str, str]:
        """Loss, attention distances, entropy, and loss with ablated heads."""
        ablated = {f"ablated@{share}": f"nats, {share} % ablated" for share in ABLATED_PERCENTAGES}
        return {"nats": "nats per token", "min_distance": "shortest distance of a head",
                "max_distance": "longest distance", "min_entropy": "lowest entropy", **ablated}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train one model, then ablate increasing shares of its least important heads."""
        file = write_examples(context.folder / "train.tsv", grammar_examples(self.train_size, seed))
        shape = transformer_shape(self.width, self.layers, self.layers) | {"num_heads": int(condition)}
        model = train_model(context, file, seed, shape, tokenizer=TOKENIZER)
        test_examples = grammar_examples(self.test_size, seed, "test")
        inspected = grammar_examples(self.inspect_size, seed, "valid")
        return (
            {"nats": nats_per_token(model, test_examples)}
            | _head_extremes(model, inspected)
            | self._ablate(model, inspected, test_examples)
        )

    def _ablate(self, model: Model, ranked_on: Sequence[Example], test: Sequence[Example]) -> dict[str, float]:
        """Return the loss without the least important heads, ranked as by Michel et al. on other examples."""
        corpus: list[tuple[str, str | None]] = [(example.source, example.target) for example in ranked_on]
        ranked = [head.head_ref for head in head_importance(model, corpus, model.config.decoding)]
        numbers = {}
        for share in ABLATED_PERCENTAGES:
            least_important = ranked[len(ranked) - max(1, round(len(ranked) * share / 100)) :]
            numbers[f"ablated@{share}"] = nats_per_token(model.with_ablated(least_important), test)
        return numbers

    def charts(self, findings: Findings) -> list[Chart]:
        """Return loss and attention distance by number of heads."""

        def series(label: str, name: str) -> Series:
            return Series(label, [(count, findings.values(str(count), name)) for count in self.counts])

        ablated = [series(f"{share} % of heads ablated", f"ablated@{share}") for share in ABLATED_PERCENTAGES]
        distances = [series("shortest", "min_distance"), series("longest", "max_distance")]
        return [
            Chart("heads", "Loss by number of heads, at constant cost", "heads", "nats per token (lower is better)",
                  [series("all heads", "nats"), *ablated], log_x=True),
            Chart("heads-distance", "Mean attention distance of a head", "heads", "positions", distances, log_x=True),
        ]  # fmt: skip


def _head_extremes(model: Model, examples: Sequence[Example]) -> dict[str, float]:
    """Return the extremes over heads of mean attention distance and mean entropy."""
    distances: dict[str, list[float]] = {}
    entropies: dict[str, list[float]] = {}
    for example in examples:
        for head in head_statistics(model.trace(example.source, example.target)):
            entropies.setdefault(str(head.head_ref), []).append(head.entropy)
            if head.distance is not None:
                distances.setdefault(str(head.head_ref), []).append(head.distance)
    mean_distances = [sum(values) / len(values) for values in distances.values()]
    mean_entropies = [sum(values) / len(values) for values in entropies.values()]
    return {"min_distance": min(mean_distances), "max_distance": max(mean_distances),
            "min_entropy": min(mean_entropies), "max_entropy": max(mean_entropies)}  # fmt: skip
