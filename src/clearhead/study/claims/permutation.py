"""C6: without positions a Transformer is permutation invariant. Probed on fresh networks in double precision.

B batch, S places, D model width, H heads
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import fresh, random_ids
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement

MARKED = ("sinusoidal", "learned", "rotary", "relative")
CAUSAL = {"none, causal, 1 layer": 1, "none, causal, 2 layers": 2}

# In double precision sums over a few dozen places in another order differ by about 1e-15; a hundred thousand times as
# much is still rounding, and 1e-6 is far beyond it. Where places are marked, moving a word must show: a thousandth of
# the output's own size is far above any rounding.
RULE = DecisionRule(
    (
        Requirement("without positions, states of permuted words are the permuted states (largest relative difference)",
                    lambda seen: seen["none"]["states"], 1e-10, 1e-6, "rounding in double precision is about 1e-15"),
        Requirement("without positions, what stands for the whole does not change at all",
                    lambda seen: seen["none"]["whole"], 1e-10, 1e-6, "rounding in double precision is about 1e-15"),
        Requirement("with any positions it does change (the kind that changes least)",
                    lambda seen: min(seen[kind]["whole"] for kind in MARKED), 1e-3, 1e-6,
                    "a thousandth of the output's size is no rounding"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "order",
    "C6",
    "Without positions a Transformer is permutation invariant",
    RULE,
    "The rule is about the encoder. A causal mask tells places apart without any positions: see the rows with it.",
)


@dataclass(frozen=True)
class Order:
    """Words in another order, with and without positions."""

    about: StudyInfo = ABOUT
    minutes: float = 1.0
    seeds: int = 5
    length: int = 31
    permutations: int = 20
    layers: int = 2
    width: int = 64

    @property
    def conditions(self) -> tuple[str, ...]:
        """The encoder without positions and with each kind; then stacks with a causal mask."""
        return ("none", *MARKED, *CAUSAL)

    @property
    def columns(self) -> Mapping[str, str]:
        """What changes, largest relative difference."""
        return {"states": "states", "attention": "attention", "whole": "the whole"}

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """The largest differences over some permutations."""
        ids_BS = random_ids(3, self.length, seed)
        generator = torch.Generator().manual_seed(seed)
        orders = [torch.randperm(self.length, generator=generator) for _ in range(self.permutations)]
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4}
        with torch.no_grad():
            if condition in CAUSAL:
                layers = {"num_decoder_layers": CAUSAL[condition], "positions": "none"}
                return _of_decoder(fresh("lm", seed, shape | layers).double(), ids_BS, orders)
            layers = {"num_encoder_layers": self.layers, "positions": condition, "num_labels": 3}
            return _of_encoder(fresh("classify", seed, shape | layers).double().backbone, ids_BS, orders)

    def charts(self, found: Findings) -> list[Chart]:
        """How much the whole changes, by kind of positions."""
        points = [(x, found.values(kind, "whole")) for x, kind in enumerate(self.conditions)]
        floored = [(x, [max(value, 1e-17) for value in values]) for x, values in points]  # a logarithm has no zero
        return [
            Chart("order", "How much the output changes when words change places", "positions",
                  "largest relative change", [Series("the whole", floored)], log_y=True, ticks=self.conditions,
                  is_joined=False)
        ]  # fmt: skip


def relative(changed: Tensor, was: Tensor) -> float:
    """The largest difference, in units of the largest value."""
    return float((changed - was).abs().max() / was.abs().max())


def _of_encoder(reader: torch.nn.Module, ids_BS: Tensor, orders: list[Tensor]) -> Numbers:
    was = reader(ids_BS, want_attention=True)
    largest = {"states": 0.0, "attention": 0.0, "whole": 0.0}
    for order in orders:
        now = reader(ids_BS[:, order], want_attention=True)
        pairs = zip(now.attention, was.attention, strict=True)
        seen = {
            "states": relative(now.states_BSD, was.states_BSD[:, order]),
            "attention": max(relative(new, old[:, :, order][:, :, :, order]) for new, old in pairs),
            "whole": relative(now.pooled_BD, was.pooled_BD),
        }
        largest = {name: max(value, seen[name]) for name, value in largest.items()}
    return largest


def _of_decoder(network: torch.nn.Module, ids_BS: Tensor, orders: list[Tensor]) -> Numbers:
    """The state of the last word, which alone sees all the others, when those change places."""
    was_BD = network(ids_BS)[:, -1]
    last = ids_BS.shape[1] - 1
    moved = [torch.cat((order[order != last], order.new_tensor([last]))) for order in orders]
    return {"whole": max(relative(network(ids_BS[:, order])[:, -1], was_BD) for order in moved)}
