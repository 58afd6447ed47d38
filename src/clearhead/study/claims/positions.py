"""C6: without positions a Transformer is permutation invariant. Probed on fresh networks in double precision.

B batch, S places, D model width, H heads

C7: sinusoidal positions make offsets linear functions; learned ones do about as well.

L positions, D model width
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.model.positions import sinusoids
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import (
    FAST_MEASUREMENT,
    TOKENIZER,
    examples_of_length,
    nats_per_token,
    random_ids,
    train_model,
    untrained_network,
    write_examples,
)
from clearhead.study.harness.protocol import DecisionRule, Findings, Numbers, Requirement, StudyContext, StudyInfo

POSITION_KINDS = ("sinusoidal", "learned", "rotary", "relative")
CAUSAL = {"none, causal, 1 layer": 1, "none, causal, 2 layers": 2}

# In double precision sums over a few dozen places in another order differ by about 1e-15; a hundred thousand times as
# much is still rounding, and 1e-6 is far beyond it. Where places are marked, moving a word must show: a thousandth of
# the output's own size is far above any rounding.
ORDER_RULE = DecisionRule(
    (
        Requirement("without positions, states of permuted words are the permuted states (largest relative difference)",
                    lambda seen: seen["none"]["states"], 1e-10, 1e-6, "rounding in double precision is about 1e-15"),
        Requirement("without positions, what stands for the whole does not change at all",
                    lambda seen: seen["none"]["whole"], 1e-10, 1e-6, "rounding in double precision is about 1e-15"),
        Requirement("with any positions it does change (the kind that changes least)",
                    lambda seen: min(seen[kind]["whole"] for kind in POSITION_KINDS), 1e-3, 1e-6,
                    "a thousandth of the output's size is no rounding"),
    )
)  # fmt: skip
ORDER = StudyInfo(
    "order",
    "C6",
    "Without positions a Transformer is permutation invariant",
    ORDER_RULE,
    "The rule is about the encoder. A causal mask tells places apart without any positions: see the rows with it.",
)


@dataclass(frozen=True)
class PermutationStudy:
    """Words in another order, with and without positions."""

    about: StudyInfo = ORDER
    minutes: float = 1.0
    seeds: int = 5
    length: int = 31
    permutations: int = 20
    layers: int = 2
    width: int = 64

    @property
    def conditions(self) -> tuple[str, ...]:
        """The encoder without positions and with each kind; then stacks with a causal mask."""
        return ("none", *POSITION_KINDS, *CAUSAL)

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
                return _of_decoder(untrained_network("lm", seed, shape | layers).double(), ids_BS, orders)
            layers = {"num_encoder_layers": self.layers, "positions": condition, "num_labels": 3}
            return _of_encoder(untrained_network("classify", seed, shape | layers).double().backbone, ids_BS, orders)

    def charts(self, found: Findings) -> list[Chart]:
        """How much the whole changes, by kind of positions."""
        points = [(x, found.values(kind, "whole")) for x, kind in enumerate(self.conditions)]
        floored = [(x, [max(value, 1e-17) for value in values]) for x, values in points]  # a logarithm has no zero
        return [
            Chart("order", "How much the output changes when words change places", "positions",
                  "largest relative change", [Series("the whole", floored)], log_y=True, ticks=self.conditions,
                  is_joined=False)
        ]  # fmt: skip


def relative_difference(changed: Tensor, was: Tensor) -> float:
    """The largest difference, in units of the largest value."""
    return float((changed - was).abs().max() / was.abs().max())


def _of_encoder(reader: torch.nn.Module, ids_BS: Tensor, orders: list[Tensor]) -> Numbers:
    was = reader(ids_BS, want_attention=True)
    largest = {"states": 0.0, "attention": 0.0, "whole": 0.0}
    for order in orders:
        now = reader(ids_BS[:, order], want_attention=True)
        pairs = zip(now.attention, was.attention, strict=True)
        seen = {
            "states": relative_difference(now.states_BSD, was.states_BSD[:, order]),
            "attention": max(relative_difference(new, old[:, :, order][:, :, :, order]) for new, old in pairs),
            "whole": relative_difference(now.pooled_BD, was.pooled_BD),
        }
        largest = {name: max(value, seen[name]) for name, value in largest.items()}
    return largest


def _of_decoder(network: torch.nn.Module, ids_BS: Tensor, orders: list[Tensor]) -> Numbers:
    """The state of the last word, which alone sees all the others, when those change places."""
    was_BD = network(ids_BS)[:, -1]
    last = ids_BS.shape[1] - 1
    moved = [torch.cat((order[order != last], order.new_tensor([last]))) for order in orders]
    return {"whole": max(relative_difference(network(ids_BS[:, order])[:, -1], was_BD) for order in moved)}


COMPARED_KINDS = ("sinusoidal", "learned", "rotary", "relative", "none")

# A rotation of each pair of dimensions maps every place to the place k further on, exactly: what is left is the
# rounding of a float32 table and of the fit. A table of random numbers has no such map: its error on places that the
# fit has not seen is about 1. In the paper (table 3, row E) both came out at the same perplexity, 4.92. A tenth of a
# nat, or ten per cent of the perplexity, is "about as well" for runs of minutes; a third more perplexity is not.
POSITIONS_RULE = DecisionRule(
    (
        Requirement("one linear map for each offset takes any place to the place that much further on (relative error "
                    "on places that the fit has not seen, the worst offset)",
                    lambda seen: seen["sinusoidal"]["map"], 1e-3, 0.1, "the rounding of a float32 table and its fit"),
        Requirement("a random table of the same size has no such map",
                    lambda seen: seen["sinusoidal"]["random_map"], 0.5, 0.1, "else the fit would fit anything"),
        Requirement("learned positions do about as well, in the trained length (difference in nats a token)",
                    lambda seen: abs(seen["learned"]["within"] - seen["sinusoidal"]["within"]), 0.1, 0.3,
                    "ten per cent of the perplexity, and a third"),
    )
)  # fmt: skip
POSITIONS = StudyInfo(
    "positions",
    "C7",
    "Sinusoidal positions: each dimension its own frequency, relative offsets are linear functions; learned positions "
    "do about as well",
    POSITIONS_RULE,
    "The claim says nothing of longer sentences than those of training; the column `beyond` does.",
)


@dataclass(frozen=True)
class PositionsStudy:
    """Five ways to mark places, in and beyond the trained length; and the linear map."""

    about: StudyInfo = POSITIONS
    minutes: float = 15.0
    seeds: int = 2
    pairs: int = 8000
    tested: int = 200
    longest: int = 10
    beyond: tuple[int, int] = (14, 30)
    width: int = 64
    layers: int = 2
    table: int = 512
    offsets: tuple[int, ...] = (1, 2, 5, 10, 50, 100)

    @property
    def conditions(self) -> tuple[str, ...]:
        """How places are marked."""
        return COMPARED_KINDS

    @property
    def columns(self) -> Mapping[str, str]:
        """Quality and the map."""
        return {"within": f"nats a token, up to {self.longest} words", "beyond": f"from {self.beyond[0]} words",
                "map": "error of the map", "random_map": "of a random table"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training on short sentences."""
        short = examples_of_length(self.pairs, seed, "train", 2, self.longest)
        file = write_examples(bench.folder / "train.tsv", short)
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4, "positions": condition,
                 "num_encoder_layers": self.layers, "num_decoder_layers": self.layers}  # fmt: skip
        model = train_model(bench, file, seed, shape, share=FAST_MEASUREMENT, tokenizer=TOKENIZER)
        found = {
            "within": nats_per_token(model, examples_of_length(self.tested, seed, "test", 2, self.longest)),
            "beyond": nats_per_token(model, examples_of_length(self.tested, seed, "test", *self.beyond)),
        }
        if condition == "sinusoidal":
            generator = torch.Generator().manual_seed(seed)
            found["map"] = linear_map_error(sinusoids(self.table, self.width).double(), self.offsets)
            random_LD = torch.randn(self.table, self.width, generator=generator, dtype=torch.float64)
            found["random_map"] = linear_map_error(random_LD, self.offsets)
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """Quality in and beyond the trained length."""
        series = [Series(label, [(x, found.values(kind, name)) for x, kind in enumerate(COMPARED_KINDS)])
                  for name, label in (("within", "trained length"), ("beyond", "longer"))]  # fmt: skip
        return [Chart("positions", "Quality in and beyond the trained length", "positions",
                      "nats a token (lower is better)", series, ticks=COMPARED_KINDS, is_joined=False)]  # fmt: skip


def linear_map_error(table_LD: Tensor, offsets: tuple[int, ...]) -> float:
    """The worst offset's error of a linear map fitted on every other place, measured on the places between.

    Relative: 0 for a perfect map, 1 for one that says nothing.
    """
    worst = 0.0
    for offset in offsets:
        from_LD, to_LD = table_LD[:-offset], table_LD[offset:]
        # fast turning pairs are well told apart, slow ones hardly: a pseudo-inverse, not a plain solution
        map_DD = torch.linalg.pinv(from_LD[::2], rtol=1e-10) @ to_LD[::2]
        left = (from_LD[1::2] @ map_DD - to_LD[1::2]).norm() / to_LD[1::2].norm()
        worst = max(worst, float(left))
    return worst
