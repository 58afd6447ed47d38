"""Every study by name, at each of its sizes: miniature (seconds, for tests), default, and full (`--full`)."""

import difflib
from collections.abc import Mapping
from typing import Literal

from clearhead.errors import StudyError
from clearhead.study.claims.alignment import AlignmentStudy
from clearhead.study.claims.attention_scaling import Scaling
from clearhead.study.claims.bottleneck import Bottleneck
from clearhead.study.claims.compute_scaling import Scale
from clearhead.study.claims.data_efficiency import Data
from clearhead.study.claims.heads import Heads
from clearhead.study.claims.layers import Layers
from clearhead.study.claims.long_range import LongRange
from clearhead.study.claims.mask import Mask
from clearhead.study.claims.parallelism import Parallel
from clearhead.study.claims.permutation import Order
from clearhead.study.claims.positions import Positions
from clearhead.study.claims.pronoun import PronounStudy
from clearhead.study.claims.receptive_field import Reach
from clearhead.study.claims.residual import ResidualStudy
from clearhead.study.harness.protocol import Study

Size = Literal["miniature", "default", "full"]

STUDIES: Mapping[str, Mapping[Size, Study]] = {
    "long-range": {
        "miniature": LongRange(
            minutes=0.1, seeds=1, distances=(3, 7), words=100, bins=((2, 4), (5, 8)), pronouns=20, tested=4, width=8
        ),
        "default": LongRange(),
        "full": LongRange(minutes=240, seeds=3, words=1_000_000, pronouns=20_000, tested=500),
    },
    "parallel": {
        "miniature": Parallel(seeds=1, lengths=(3, 24), distances=(1, 20), batch_tokens=48, width=8, repeats=1),
        "default": Parallel(),
        "full": Parallel(seeds=5, lengths=(16, 32, 64, 128, 256, 512, 1024, 2048), width=128, repeats=7, minutes=60),
    },
    "bottleneck": {
        "miniature": Bottleneck(minutes=0.1, seeds=1, pairs=60, tested=4, bins=((3, 6), (10, 13)), width=8),
        "default": Bottleneck(),
        "full": Bottleneck(minutes=120, seeds=5, pairs=100_000, tested=500, width=256),
    },
    "alignment": {
        "miniature": AlignmentStudy(minutes=0.1, seeds=1, pairs=60, tested=6, width=8, layers=1),
        "default": AlignmentStudy(),
        "full": AlignmentStudy(minutes=120, seeds=3, pairs=100_000, tested=1000, layers=4),
    },
    "pronoun": {
        "miniature": PronounStudy(
            minutes=0.1,
            seeds=1,
            pairs=60,
            tested=6,
            bins=((2, 4), (5, 8)),
            trained=(2, 8),
            cut=1,
            draws=2,
            width=8,
            layers=1,
        ),
        "default": PronounStudy(),
        "full": PronounStudy(minutes=240, seeds=3, pairs=100_000, tested=300, draws=20, layers=4),
    },
    "order": {
        "miniature": Order(seeds=2, length=7, permutations=3, width=16),
        "default": Order(),
        "full": Order(seeds=20, length=61, permutations=50, layers=6, width=128, minutes=10),
    },
    "positions": {
        "miniature": Positions(minutes=0.1, seeds=1, pairs=60, tested=5, width=16, layers=1, table=64, offsets=(1, 3)),
        "default": Positions(),
        "full": Positions(minutes=240, seeds=3, pairs=50_000, tested=1000, width=128, layers=4),
    },
    "scaling": {
        "miniature": Scaling(
            minutes=0.1, seeds=1, key_dims=(2, 128), queries=50, width=16, layers=1, pairs=60, trained_key_dim=8
        ),
        "default": Scaling(),
        "full": Scaling(minutes=120, seeds=5, width=128, layers=4, pairs=50_000),
    },
    "mask": {
        "miniature": Mask(seeds=1, lengths=(5, 17), width=12, layers=1),
        "default": Mask(),
        "full": Mask(seeds=5, lengths=(8, 16, 32, 64, 128, 256, 512), layers=4, width=128, minutes=40),
    },
    "heads": {
        "miniature": Heads(minutes=0.1, seeds=1, counts=(1, 2, 4), pairs=60, tested=5, looked_at=2, width=8, layers=1),
        "default": Heads(),
        "full": Heads(minutes=300, seeds=3, counts=(1, 2, 4, 8, 16, 32), pairs=100_000, tested=1000, width=128),
    },
    "data": {
        "miniature": Data(
            minutes=0.1,
            seeds=1,
            sizes=(30, 60),
            tested=20,
            width=8,
            layers=1,
            text_sizes=(30, 60),
            text_tested=5,
            text_width=8,
            text_layers=1,
        ),
        "default": Data(),
        "full": Data(
            minutes=300,
            seeds=5,
            sizes=(25, 50, 100, 200, 400, 800, 1500),
            text_sizes=(100, 300, 1000, 3000, 10_000, 30_000, 100_000),
            text_width=128,
            text_layers=3,
        ),
    },
    "reach": {
        "miniature": Reach(minutes=0.1, seeds=1, width=8, layers=1, patch=4, trained=40, looked_at=2),
        "default": Reach(),
        "full": Reach(minutes=60, seeds=10, width=96, layers=6, looked_at=297),
    },
    "scale": {
        "miniature": Scale(seeds=1, shapes=((1, 8), (1, 12), (1, 16)), on_paper=("gpt3 shape",), tokens=16, repeats=1),
        "default": Scale(),
        "full": Scale(seeds=5, shapes=((2, 64), (4, 128), (4, 256), (6, 512), (8, 768), (12, 1024)), minutes=60),
    },
    "residual": {
        "miniature": ResidualStudy(minutes=0.1, seeds=1, depths=(1, 2), steps=2, sentences=40, width=8),
        "default": ResidualStudy(),
        "full": ResidualStudy(minutes=300, seeds=3, depths=(2, 4, 8, 12, 18, 24), steps=2000, sentences=50_000),
    },
    "layers": {
        "miniature": Layers(minutes=0.1, seeds=1, pairs=60, probed=9, distance=(2, 8), width=8, layers=2),
        "default": Layers(),
        "full": Layers(minutes=180, seeds=3, pairs=100_000, probed=3000, layers=6),
    },
}


def find(name: str, size: Size = "default") -> Study:
    """The study of that name."""
    if name not in STUDIES:
        close = difflib.get_close_matches(name, [*STUDIES], n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(STUDIES)}"
        raise StudyError(f"unknown study {name!r}; {hint}")
    return STUDIES[name][size]
