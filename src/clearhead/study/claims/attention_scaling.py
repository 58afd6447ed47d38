"""C8: dividing by sqrt(d_k) keeps the softmax from saturating and its gradient alive.

T queries, S keys, K head width
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.inspection.analyses.head_statistics import entropy
from clearhead.kernels import AttentionLayout, PaddedLayout
from clearhead.model.attention import attention_weights
from clearhead.study.claims.parallelism import at
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import TOKENIZER, fresh, nats, random_ids, sentences, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement, Seen

DIVIDED, PLAIN = "divided", "not divided"


def _ends(numbers: Numbers, name: str) -> tuple[float, float]:
    row = at(numbers, name)
    return row[min(row)], row[max(row)]


def _lost(seen: Seen, name: str) -> float:
    """What is left at the greatest d_k without the division, as a share of what is left with it."""
    return _ends(seen[PLAIN], name)[1] / _ends(seen[DIVIDED], name)[1]


# Vectors of independent numbers of variance 1, as in the paper's footnote 4. With the division nothing should depend on
# d_k: a tenth is room for chance. Without it "saturating" is taken to be half of the entropy gone, and a gradient that
# is not alive to be less than a third of the other.
RULE = DecisionRule(
    (
        Requirement("with the division, the entropy at the greatest d_k is that at the smallest (share)",
                    lambda seen: _ends(seen[DIVIDED], "entropy")[1] / _ends(seen[DIVIDED], "entropy")[0], 0.9, 0.5,
                    "nothing should depend on d_k"),
        Requirement("without it, the entropy at the greatest d_k is a small share of that",
                    lambda seen: _lost(seen, "entropy"), 0.5, 0.9, "half of it gone is saturated"),
        Requirement("without it, the gradient through the softmax is a small share of that",
                    lambda seen: _lost(seen, "gradient"), 0.34, 0.9, "a third is no longer alive"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "scaling",
    "C8",
    "Dividing by sqrt(d_k) keeps the softmax from saturating and its gradient alive",
    RULE,
    "The rule is about vectors of variance 1. Whether a network has such vectors at its start, and whether training is "
    "hurt, the columns `fresh network` and `nats after training` say; the claim does not.",
)


@dataclass(frozen=True)
class Scaling:
    """Softmax with and without the division, by d_k; then two trainings."""

    about: StudyInfo = ABOUT
    minutes: float = 6.0
    seeds: int = 3
    key_dims: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    keys: int = 64
    queries: int = 500
    width: int = 64
    layers: int = 2
    trained_key_dim: int = 256
    pairs: int = 8000

    @property
    def conditions(self) -> tuple[str, ...]:
        """With and without."""
        return (DIVIDED, PLAIN)

    @property
    def columns(self) -> Mapping[str, str]:
        """At the greatest d_k."""
        last = self.key_dims[-1]
        return {f"variance@{last}": f"variance of scores, d_k={last}", f"entropy@{last}": "entropy",
                f"gradient@{last}": "gradient", f"fresh_entropy@{last}": "entropy, fresh network",
                "nats": f"nats after training, d_k={self.trained_key_dim}"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """Vectors, fresh networks, and one training."""
        is_divided = condition == DIVIDED
        found: dict[str, float] = {}
        for key_dim in self.key_dims:
            found |= {f"{name}@{key_dim}": value for name, value in self._softmax(key_dim, is_divided, seed).items()}
            found[f"fresh_entropy@{key_dim}"] = self._fresh_entropy(key_dim, is_divided, seed)
        file = write_examples(bench.folder / "train.tsv", sentences(self.pairs, seed))
        settings = self._shape(self.trained_key_dim, is_divided) | {"num_decoder_layers": self.layers}
        model = train(bench, file, seed, settings, tokenizer=TOKENIZER)
        return found | {"nats": nats(model, sentences(max(20, self.pairs // 20), seed, "test"))}

    def _shape(self, key_dim: int, is_divided: bool) -> dict[str, Any]:
        shape = {
            "model_dim": self.width,
            "feed_forward_dim": 2 * self.width,
            "num_heads": 4,
            "value_dim": self.width // 4,
        }
        return {**shape, "key_dim": key_dim, "scale_attention": is_divided, "num_encoder_layers": self.layers}

    def _softmax(self, key_dim: int, is_divided: bool, seed: int) -> dict[str, float]:
        """Of random queries and keys."""
        generator = torch.Generator().manual_seed(seed)
        q_11TK = torch.randn(1, 1, self.queries, key_dim, generator=generator)
        k_11SK = torch.randn(1, 1, self.keys, key_dim, generator=generator)
        scores_11TS = q_11TK @ k_11SK.transpose(-2, -1) * (key_dim**-0.5 if is_divided else 1.0)
        scores_11TS.requires_grad_()
        identity_11SS = torch.eye(self.keys)[None, None]  # scores as queries, one axis per key: the softmax alone
        queries, keys = (PaddedLayout.of(length, torch.device("cpu")) for length in (self.queries, self.keys))
        weights_11TS = attention_weights(scores_11TS, identity_11SS, AttentionLayout(queries, keys), scale=1.0)
        v_11TS = torch.randn(weights_11TS.shape, generator=generator)
        [gradient] = torch.autograd.grad((weights_11TS * v_11TS).sum(), scores_11TS)
        return {
            "variance": float(scores_11TS.detach().var()),
            "entropy": entropy(weights_11TS.detach()[0, 0].numpy()),
            "gradient": float(gradient.norm(dim=-1).mean()),
        }

    def _fresh_entropy(self, key_dim: int, is_divided: bool, seed: int) -> float:
        """Of the first layer of a network whose weights were just drawn."""
        network = fresh("classify", seed, {**self._shape(key_dim, is_divided), "num_labels": 3})
        with torch.no_grad():
            weights_BHSS = network.backbone(random_ids(2, self.keys, seed), want_attention=True).attention[0]
        return entropy(weights_BHSS.flatten(0, 2).numpy())

    def charts(self, found: Findings) -> list[Chart]:
        """Entropy and gradient by d_k."""

        def series(name: str) -> list[Series]:
            return [Series(kind, [(k, found.values(kind, f"{name}@{k}")) for k in self.key_dims])
                    for kind in self.conditions]  # fmt: skip

        return [
            Chart("scaling-entropy", f"Entropy of the softmax over {self.keys} keys", "d_k", "nats",
                  [*series("entropy"), *(Series(f"{one.label}, fresh network", one.points)
                                         for one in series("fresh_entropy"))], log_x=True),
            Chart("scaling-gradient", "Gradient through the softmax", "d_k", "norm at the scores", series("gradient"),
                  log_x=True, log_y=True),
        ]  # fmt: skip
