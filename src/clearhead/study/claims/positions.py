"""C7: sinusoidal positions make offsets linear functions; learned ones do about as well.

L positions, D model width
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.model.positions import sinusoids
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.training import QUICK, TOKENIZER, nats, of_length, train, write_examples
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement

KINDS = ("sinusoidal", "learned", "rotary", "relative", "none")

# A rotation of each pair of dimensions maps every place to the place k further on, exactly: what is left is the
# rounding of a float32 table and of the fit. A table of random numbers has no such map: its error on places that the
# fit has not seen is about 1. In the paper (table 3, row E) both came out at the same perplexity, 4.92. A tenth of a
# nat, or ten per cent of the perplexity, is "about as well" for runs of minutes; a third more perplexity is not.
RULE = DecisionRule(
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
ABOUT = StudyInfo(
    "positions",
    "C7",
    "Sinusoidal positions: each dimension its own frequency, relative offsets are linear functions; learned positions "
    "do about as well",
    RULE,
    "The claim says nothing of longer sentences than those of training; the column `beyond` does.",
)


@dataclass(frozen=True)
class Positions:
    """Five ways to mark places, in and beyond the trained length; and the linear map."""

    about: StudyInfo = ABOUT
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
        return KINDS

    @property
    def columns(self) -> Mapping[str, str]:
        """Quality and the map."""
        return {"within": f"nats a token, up to {self.longest} words", "beyond": f"from {self.beyond[0]} words",
                "map": "error of the map", "random_map": "of a random table"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One training on short sentences."""
        short = of_length(self.pairs, seed, "train", 2, self.longest)
        file = write_examples(bench.folder / "train.tsv", short)
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4, "positions": condition,
                 "num_encoder_layers": self.layers, "num_decoder_layers": self.layers}  # fmt: skip
        model = train(bench, file, seed, shape, share=QUICK, tokenizer=TOKENIZER)
        found = {
            "within": nats(model, of_length(self.tested, seed, "test", 2, self.longest)),
            "beyond": nats(model, of_length(self.tested, seed, "test", *self.beyond)),
        }
        if condition == "sinusoidal":
            generator = torch.Generator().manual_seed(seed)
            found["map"] = map_error(sinusoids(self.table, self.width).double(), self.offsets)
            random_LD = torch.randn(self.table, self.width, generator=generator, dtype=torch.float64)
            found["random_map"] = map_error(random_LD, self.offsets)
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """Quality in and beyond the trained length."""
        series = [Series(label, [(x, found.values(kind, name)) for x, kind in enumerate(KINDS)])
                  for name, label in (("within", "trained length"), ("beyond", "longer"))]  # fmt: skip
        return [Chart("positions", "Quality in and beyond the trained length", "positions",
                      "nats a token (lower is better)", series, ticks=KINDS, is_joined=False)]  # fmt: skip


def map_error(table_LD: Tensor, offsets: tuple[int, ...]) -> float:
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
