"""Word order and position encodings.

C6: without position information a Transformer is permutation invariant, tested on untrained networks in float64.
C7: sinusoidal encodings make offsets linear functions; learned encodings are about as good.

B batch, S positions, D model width, H heads, L positions of an encoding table
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
    transformer_shape,
    untrained_network,
    write_examples,
)
from clearhead.study.harness.protocol import DecisionRule, Findings, Numbers, Requirement, StudyContext, StudyInfo

POSITION_KINDS = ("sinusoidal", "learned", "rotary", "relative")
CAUSAL = {"none, causal, 1 layer": 1, "none, causal, 2 layers": 2}

# In float64, sums over a few dozen positions in another order differ by about 1e-15; 1e-10 is still rounding error and
# 1e-6 is far beyond it. With position encodings a permutation must change the output by at least 0.1 % of its size,
# which is far above rounding error.
PERMUTATION_RULE = DecisionRule(
    (
        Requirement("without positions, permuting the words permutes the states (largest relative difference)",
                    lambda runs: runs["none"]["states"], 1e-10, 1e-6, "float64 rounding error is about 1e-15"),
        Requirement("without positions, the pooled output does not change (largest relative difference)",
                    lambda runs: runs["none"]["pooled"], 1e-10, 1e-6, "float64 rounding error is about 1e-15"),
        Requirement("with every kind of positions the pooled output changes (kind with the smallest change)",
                    lambda runs: min(runs[kind]["pooled"] for kind in POSITION_KINDS), 1e-3, 1e-6,
                    "0.1 % of the output's size is far above rounding error"),
    )
)  # fmt: skip
PERMUTATION_INFO = StudyInfo(
    "order",
    "C6",
    "Without positions a Transformer is permutation invariant",
    PERMUTATION_RULE,
    "The rule covers the encoder. A causal mask distinguishes positions without any encoding, as the causal rows show.",
)


@dataclass(frozen=True)
class PermutationStudy:
    """Outputs for permuted words, with and without position encodings."""

    info: StudyInfo = PERMUTATION_INFO
    minutes: float = 1.0
    seeds: int = 5
    length: int = 31
    permutations: int = 20
    layers: int = 2
    width: int = 64

    @property
    def conditions(self) -> tuple[str, ...]:
        """Encoders without and with each kind of positions, then decoders with a causal mask and no positions."""
        return ("none", *POSITION_KINDS, *CAUSAL)

    @property
    def columns(self) -> Mapping[str, str]:
        """Largest relative differences."""
        return {"states": "states", "attention": "attention", "pooled": "pooled output"}

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Return the largest differences over some permutations."""
        ids_BS = random_ids(3, self.length, seed)
        generator = torch.Generator().manual_seed(seed)
        permutations = [torch.randperm(self.length, generator=generator) for _ in range(self.permutations)]
        with torch.no_grad():
            if condition in CAUSAL:
                shape = transformer_shape(self.width, 0, CAUSAL[condition], positions="none")
                decoder = untrained_network("lm", seed, shape).double()
                return _decoder_differences(decoder, ids_BS, permutations)
            shape = transformer_shape(self.width, self.layers, positions=condition, num_labels=3)
            encoder = untrained_network("classify", seed, shape).double().backbone
            return _encoder_differences(encoder, ids_BS, permutations)

    def charts(self, findings: Findings) -> list[Chart]:
        """Return the change of the pooled output by kind of positions."""
        points = [(x, findings.values(kind, "pooled")) for x, kind in enumerate(self.conditions)]
        positive = [(x, [max(value, 1e-17) for value in values]) for x, values in points]  # a log axis has no zero
        return [
            Chart("order", "Change of the output when words are permuted", "positions",
                  "largest relative change", [Series("pooled output", positive)], log_y=True, ticks=self.conditions,
                  is_joined=False)
        ]  # fmt: skip


def relative_difference(changed: Tensor, original: Tensor) -> float:
    """Return the largest difference, relative to the largest original value."""
    return float((changed - original).abs().max() / original.abs().max())


def _encoder_differences(encoder: torch.nn.Module, ids_BS: Tensor, permutations: list[Tensor]) -> Numbers:
    original = encoder(ids_BS, want_attention=True)
    largest = {"states": 0.0, "attention": 0.0, "pooled": 0.0}
    for permutation in permutations:
        permuted = encoder(ids_BS[:, permutation], want_attention=True)
        layers = zip(permuted.attention, original.attention, strict=True)
        differences = {
            "states": relative_difference(permuted.states_BSD, original.states_BSD[:, permutation]),
            "attention": max(
                relative_difference(new_BHSS, old_BHSS[:, :, permutation][:, :, :, permutation])
                for new_BHSS, old_BHSS in layers
            ),
            "pooled": relative_difference(permuted.pooled_BD, original.pooled_BD),
        }
        largest = {name: max(value, differences[name]) for name, value in largest.items()}
    return largest


def _decoder_differences(network: torch.nn.Module, ids_BS: Tensor, permutations: list[Tensor]) -> Numbers:
    """Permute all words but the last and return the change of the last state, the only one that attends to all."""
    original_BD = network(ids_BS)[:, -1]
    last = ids_BS.shape[1] - 1
    fixed_last = [torch.cat((order[order != last], order.new_tensor([last]))) for order in permutations]
    return {"pooled": max(relative_difference(network(ids_BS[:, order])[:, -1], original_BD) for order in fixed_last)}


COMPARED_KINDS = ("sinusoidal", "learned", "rotary", "relative", "none")

# A rotation of each pair of dimensions maps the encoding of every position to that of the position k further right; the
# remaining error is the rounding of a float32 table and of the fit. A table of random numbers has no such map: its
# error on positions that were not fitted is about 1. In the paper (table 3, row E) both kinds reached a perplexity of
# 4.92. In runs of minutes "about as good" means within 0.1 nats (10 % of the perplexity); a third more is not.
POSITIONS_RULE = DecisionRule(
    (
        Requirement("one linear map per offset converts every encoding to the one at that offset (relative error at "
                    "positions that were not fitted, worst offset)",
                    lambda runs: runs["sinusoidal"]["map_error"], 1e-3, 0.1,
                    "the error is the rounding of a float32 table and of the fit"),
        Requirement("a random table of the same size has no such map (relative error)",
                    lambda runs: runs["sinusoidal"]["random_map_error"], 0.5, 0.1,
                    "otherwise the fit would work for any table"),
        Requirement("learned positions are about as good within the training length (difference in nats per token)",
                    lambda runs: abs(runs["learned"]["within"] - runs["sinusoidal"]["within"]), 0.1, 0.3,
                    "0.1 nats are 10 % of the perplexity, 0.3 nats a third"),
    )
)  # fmt: skip
POSITIONS_INFO = StudyInfo(
    "positions",
    "C7",
    "Sinusoidal positions: each dimension has its own frequency, relative offsets are linear functions; learned "
    "positions are about as good",
    POSITIONS_RULE,
    "The claim does not cover sentences longer than those in training; the second column does.",
)


@dataclass(frozen=True)
class PositionsStudy:
    """Five position encodings within and beyond the training length, and the linear map of the sinusoidal one."""

    info: StudyInfo = POSITIONS_INFO
    minutes: float = 15.0
    seeds: int = 2
    train_size: int = 8000
    test_size: int = 200
    max_words: int = 10  # in training
    long_words: tuple[int, int] = (14, 30)
    width: int = 64
    layers: int = 2
    table_size: int = 512
    offsets: tuple[int, ...] = (1, 2, 5, 10, 50, 100)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Kinds of position encodings."""
        return COMPARED_KINDS

    @property
    def columns(self) -> Mapping[str, str]:
        """Loss by length, and errors of the linear map."""
        return {"within": f"nats per token, up to {self.max_words} words", "beyond": f"from {self.long_words[0]} words",
                "map_error": "error of the map", "random_map_error": "of a random table"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train one model on short sentences and test it on short and on long ones."""
        short_examples = examples_of_length(self.train_size, seed, "train", 2, self.max_words)
        file = write_examples(context.folder / "train.tsv", short_examples)
        shape = transformer_shape(self.width, self.layers, self.layers, positions=condition)
        model = train_model(context, file, seed, shape, share=FAST_MEASUREMENT, tokenizer=TOKENIZER)
        numbers = {
            "within": nats_per_token(model, examples_of_length(self.test_size, seed, "test", 2, self.max_words)),
            "beyond": nats_per_token(model, examples_of_length(self.test_size, seed, "test", *self.long_words)),
        }
        if condition == "sinusoidal":
            generator = torch.Generator().manual_seed(seed)
            random_LD = torch.randn(self.table_size, self.width, generator=generator, dtype=torch.float64)
            numbers["map_error"] = linear_map_error(sinusoids(self.table_size, self.width).double(), self.offsets)
            numbers["random_map_error"] = linear_map_error(random_LD, self.offsets)
        return numbers

    def charts(self, findings: Findings) -> list[Chart]:
        """Return the loss within and beyond the training length."""
        labels = {"within": "training length", "beyond": "longer"}
        series = [findings.condition_series(name, COMPARED_KINDS, label) for name, label in labels.items()]
        return [Chart("positions", "Loss within and beyond the training length", "positions",
                      "nats per token (lower is better)", series, ticks=COMPARED_KINDS, is_joined=False)]  # fmt: skip


def linear_map_error(table_LD: Tensor, offsets: tuple[int, ...]) -> float:
    """Return the relative error of a linear map between encodings at an offset, for the worst offset.

    The map is fitted on even positions and tested on odd ones: 0 for a perfect map, 1 for one that predicts nothing.
    """
    worst = 0.0
    for offset in offsets:
        from_LD, to_LD = table_LD[:-offset], table_LD[offset:]
        # Dimensions of low frequency hardly differ between positions, so the system is ill-conditioned: pseudo-inverse.
        map_DD = torch.linalg.pinv(from_LD[::2], rtol=1e-10) @ to_LD[::2]
        error = (from_LD[1::2] @ map_DD - to_LD[1::2]).norm() / to_LD[1::2].norm()
        worst = max(worst, float(error))
    return worst
