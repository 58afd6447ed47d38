"""All studies by name, each at three sizes: miniature (seconds, for tests), default, and full (`--full`)."""

import difflib
from collections.abc import Mapping
from typing import Literal

from clearhead.errors import StudyError
from clearhead.study.claims.attention_heads import AttentionScalingStudy, HeadCountStudy
from clearhead.study.claims.causal_mask import CausalMaskStudy
from clearhead.study.claims.compute_scaling import ComputeScalingStudy
from clearhead.study.claims.data_efficiency import DataEfficiencyStudy
from clearhead.study.claims.encoder_decoder_attention import AlignmentStudy, BottleneckStudy
from clearhead.study.claims.layers import LayerProbingStudy
from clearhead.study.claims.long_range import LongRangeStudy
from clearhead.study.claims.parallelism import ParallelismStudy
from clearhead.study.claims.positions import PermutationStudy, PositionsStudy
from clearhead.study.claims.pronoun import PronounStudy
from clearhead.study.claims.receptive_field import ReceptiveFieldStudy
from clearhead.study.claims.residual import ResidualStudy
from clearhead.study.harness.protocol import Study

Size = Literal["miniature", "default", "full"]

STUDIES: Mapping[str, Mapping[Size, Study]] = {
    "long-range": {
        "miniature": LongRangeStudy(
            minutes=0.1,
            seeds=1,
            distances=(3, 7),
            train_words=100,
            bins=((2, 4), (5, 8)),
            pronoun_sentences=20,
            test_size=4,
            width=8,
        ),
        "default": LongRangeStudy(),
        "full": LongRangeStudy(minutes=240, seeds=3, train_words=1_000_000, pronoun_sentences=20_000, test_size=500),
    },
    "parallel": {
        "miniature": ParallelismStudy(seeds=1, lengths=(3, 24), distances=(1, 20), batch_tokens=48, width=8, repeats=1),
        "default": ParallelismStudy(),
        "full": ParallelismStudy(
            seeds=5, lengths=(16, 32, 64, 128, 256, 512, 1024, 2048), width=128, repeats=7, minutes=60
        ),
    },
    "bottleneck": {
        "miniature": BottleneckStudy(
            minutes=0.1, seeds=1, train_size=60, test_size=4, bins=((3, 6), (10, 13)), width=8
        ),
        "default": BottleneckStudy(),
        "full": BottleneckStudy(minutes=120, seeds=5, train_size=100_000, test_size=500, width=256),
    },
    "alignment": {
        "miniature": AlignmentStudy(minutes=0.1, seeds=1, train_size=60, test_size=6, width=8, layers=1),
        "default": AlignmentStudy(),
        "full": AlignmentStudy(minutes=120, seeds=3, train_size=100_000, test_size=1000, layers=4),
    },
    "pronoun": {
        "miniature": PronounStudy(
            minutes=0.1,
            seeds=1,
            train_size=60,
            test_size=6,
            bins=((2, 4), (5, 8)),
            train_distance=(2, 8),
            ablated_heads=1,
            random_draws=2,
            width=8,
            layers=1,
        ),
        "default": PronounStudy(),
        "full": PronounStudy(minutes=240, seeds=3, train_size=100_000, test_size=300, random_draws=20, layers=4),
    },
    "order": {
        "miniature": PermutationStudy(seeds=2, length=7, permutations=3, width=16),
        "default": PermutationStudy(),
        "full": PermutationStudy(seeds=20, length=61, permutations=50, layers=6, width=128, minutes=10),
    },
    "positions": {
        "miniature": PositionsStudy(
            minutes=0.1, seeds=1, train_size=60, test_size=5, width=16, layers=1, table_size=64, offsets=(1, 3)
        ),
        "default": PositionsStudy(),
        "full": PositionsStudy(minutes=240, seeds=3, train_size=50_000, test_size=1000, width=128, layers=4),
    },
    "scaling": {
        "miniature": AttentionScalingStudy(
            minutes=0.1, seeds=1, key_dims=(2, 128), queries=50, width=16, layers=1, train_size=60, trained_key_dim=8
        ),
        "default": AttentionScalingStudy(),
        "full": AttentionScalingStudy(minutes=120, seeds=5, width=128, layers=4, train_size=50_000),
    },
    "mask": {
        "miniature": CausalMaskStudy(seeds=1, lengths=(5, 17), width=12, layers=1),
        "default": CausalMaskStudy(),
        "full": CausalMaskStudy(seeds=5, lengths=(8, 16, 32, 64, 128, 256, 512), layers=4, width=128, minutes=40),
    },
    "heads": {
        "miniature": HeadCountStudy(
            minutes=0.1, seeds=1, counts=(1, 2, 4), train_size=60, test_size=5, inspect_size=2, width=8, layers=1
        ),
        "default": HeadCountStudy(),
        "full": HeadCountStudy(
            minutes=300, seeds=3, counts=(1, 2, 4, 8, 16, 32), train_size=100_000, test_size=1000, width=128
        ),
    },
    "data": {
        "miniature": DataEfficiencyStudy(
            minutes=0.1,
            seeds=1,
            sizes=(30, 60),
            test_size=20,
            width=8,
            layers=1,
            text_sizes=(30, 60),
            text_test_size=5,
            text_width=8,
            text_layers=1,
        ),
        "default": DataEfficiencyStudy(),
        "full": DataEfficiencyStudy(
            minutes=300,
            seeds=5,
            sizes=(25, 50, 100, 200, 400, 800, 1500),
            text_sizes=(100, 300, 1000, 3000, 10_000, 30_000, 100_000),
            text_width=128,
            text_layers=3,
        ),
    },
    "reach": {
        "miniature": ReceptiveFieldStudy(
            minutes=0.1, seeds=1, width=8, layers=1, patch=4, train_size=40, inspect_size=2
        ),
        "default": ReceptiveFieldStudy(),
        "full": ReceptiveFieldStudy(minutes=60, seeds=10, width=96, layers=6, inspect_size=297),
    },
    "scale": {
        "miniature": ComputeScalingStudy(
            seeds=1, shapes=((1, 8), (1, 12), (1, 16)), paper_shapes=("gpt3 shape",), tokens=16, repeats=1
        ),
        "default": ComputeScalingStudy(),
        "full": ComputeScalingStudy(
            seeds=5, shapes=((2, 64), (4, 128), (4, 256), (6, 512), (8, 768), (12, 1024)), minutes=60
        ),
    },
    "residual": {
        "miniature": ResidualStudy(minutes=0.1, seeds=1, depths=(1, 2), steps=2, sentences=40, width=8),
        "default": ResidualStudy(),
        "full": ResidualStudy(minutes=300, seeds=3, depths=(2, 4, 8, 12, 18, 24), steps=2000, sentences=50_000),
    },
    "layers": {
        "miniature": LayerProbingStudy(
            minutes=0.1, seeds=1, train_size=60, probe_size=9, distance=(2, 8), width=8, layers=2
        ),
        "default": LayerProbingStudy(),
        "full": LayerProbingStudy(minutes=180, seeds=3, train_size=100_000, probe_size=3000, layers=6),
    },
}


def get_study(name: str, size: Size = "default") -> Study:
    """Return the study of this name and size; raise StudyError with a suggestion if the name is unknown."""
    if name not in STUDIES:
        matches = difflib.get_close_matches(name, [*STUDIES], n=1)
        hint = f"did you mean {matches[0]}?" if matches else f"expected one of {', '.join(STUDIES)}"
        raise StudyError(f"unknown study {name!r}; {hint}")
    return STUDIES[name][size]
