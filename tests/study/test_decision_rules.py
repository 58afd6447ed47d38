"""Each study's rule on made-up numbers: it can say yes, no, and nothing."""

import copy
from typing import Any

import pytest

from clearhead.study import registry
from clearhead.study.claims.layers import ANTECEDENT, CONTROL, WORD

Made = dict[str, dict[str, float]]


def row(name: str, **values: float) -> dict[str, float]:
    """`row("x", _1=2)` is {"x@1": 2}."""
    return {f"{name}@{key[1:]}": value for key, value in values.items()}


RECURRENT_ROW = row("chain", _10=20, _1000=2000) | row("seconds", _10=1, _1000=8)
HOLDS: dict[str, Made] = {
    "long-range": {
        "rnn": row("accuracy", _5=1, _100=0.4, _200=0.2, _1000=0.1),
        "gru": row("accuracy", _5=1, _1000=0.2),
        "lstm": row("accuracy", _5=1, _100=0.95, _200=0.8, _1000=0.3),
        "lstm + attention": row("accuracy", _5=1, _1000=0.97),
        "transformer": row("accuracy", _5=0.99, _1000=1),
    },
    "parallel": {
        **{kind: RECURRENT_ROW | row("gradient", _1=1, _1000=1e-9) for kind in ("rnn", "gru", "lstm")},
        "transformer": row("chain", _10=40, _1000=40) | row("seconds", _10=1, _1000=3) | row("gradient", _1=1, _1000=1),
    },
    "bottleneck": {
        "without attention": row("bleu", _3=60, _19=20),
        "with attention": row("bleu", _3=65, _19=55),
    },
    "alignment": {
        "diagonal": {"best": 0.6}, "words that occur together": {"best": 0.3},
        "lstm + attention": {"best": 0.3, "sum_error": 1e-7}, "transformer": {"best": 0.2, "sum_error": 1e-7},
    },
    "pronoun": {"transformer": {"right": 0.9, "found": 0.7, "chance": 0.1, "right_off": 0.6, "right_others_off": 0.8}},
    "order": {"none": {"states": 1e-15, "whole": 1e-15},
              **{kind: {"whole": 0.2} for kind in ("sinusoidal", "learned", "rotary", "relative")}},
    "positions": {"sinusoidal": {"map": 1e-6, "random_map": 1.1, "within": 1.0}, "learned": {"within": 1.05}},
    "scaling": {
        "divided": row("entropy", _1=3.5, _1024=3.6) | row("gradient", _1=0.1, _1024=0.1),
        "not divided": row("entropy", _1=3.5, _1024=0.2) | row("gradient", _1=0.1, _1024=0.01),
    },
    "heads": {"1": {"nats": 1.2}, "2": {"nats": 1.1}, "4": {"nats": 1.0, "nearest": 1, "farthest": 6},
              "8": {"nats": 1.05}},
    "residual": {"pre-norm": row("nats", _2=2, _24=2.0), "no skip": row("nats", _24=5), "no norm": row("nats", _24=3)},
    "mask": {
        **{kind: row("future", _8=0) | row("difference", _8=1e-15) | row("times", _8=9)
           for kind in ("decoder only", "encoder-decoder")}, "no mask": row("future", _8=0.1),
    },
    "layers": {"trained": row(WORD, _0=1, _2=0.9) | row(ANTECEDENT, _0=0.35, _2=0.9) | row(CONTROL, _0=0.3, _2=0.4)},
    "data": {
        "convolution": row("accuracy", _50=0.9, _1500=0.97), "transformer": row("accuracy", _50=0.7, _1500=0.98),
        "lstm, text": row("chrf", _100=30, _9000=60), "transformer, text": row("chrf", _100=20, _9000=75),
    },
    "reach": {"patches": {"far@0": 4, "near@0": 1}, "every patch alike": {"far@0": 3.9}, "convolution": {"far@0": 1.4}},
    "scale": {
        "a": {"parameters": 1e5, "flops": 1e8, "seconds": 1, "bytes": 16, "flops_ratio": 1},
        "b": {"parameters": 1e6, "flops": 1e9, "seconds": 10, "bytes": 16, "flops_ratio": 1},
        "c": {"parameters": 1e7, "flops": 1e10, "seconds": 90, "bytes": 16, "flops_ratio": 1},
        "gpt3 shape": {"parameters": 1.7e11, "flops": 1e18, "flops_ratio": 1.1},
    },
}  # fmt: skip
# study -> (condition, number, a value with which the claim does not hold, one with which nothing is decided)
TURNS: dict[str, list[tuple[str, str, float, float]]] = {
    "long-range": [("rnn", "accuracy@200", 0.95, 0.7), ("lstm", "accuracy@100", 0.3, 0.7),
                   ("lstm", "accuracy@1000", 1.0, 0.7), ("transformer", "accuracy@1000", 0.2, 0.8)],
    "parallel": [("lstm", "chain@1000", 25, 300), ("transformer", "chain@1000", 4000, 200),
                 ("lstm", "gradient@1000", 0.5, 0.01), ("transformer", "gradient@1000", 1e-4, 0.01),
                 ("transformer", "seconds@1000", 20, 6)],
    "bottleneck": [("without attention", "bleu@19", 59.5, 48), ("with attention", "bleu@19", 20, 38)],
    "alignment": [("transformer", "sum_error", 0.1, 1e-3), ("lstm + attention", "best", 0.7, 0.55),
                  ("words that occur together", "best", 0.05, 0.15)],
    "pronoun": [("transformer", "found", 0.1, 0.2), ("transformer", "right_off", 0.8, 0.77)],
    "order": [("none", "states", 0.1, 1e-8), ("none", "whole", 0.1, 1e-8), ("rotary", "whole", 0, 1e-4)],
    "positions": [("sinusoidal", "map", 0.5, 0.01), ("sinusoidal", "random_map", 0.01, 0.3),
                  ("learned", "within", 1.5, 1.2)],
    "scaling": [("not divided", "entropy@1024", 3.5, 2.5), ("not divided", "gradient@1024", 0.1, 0.05),
                ("divided", "entropy@1", 9, 5)],
    "heads": [("1", "nats", 0.9, 1.01), ("8", "nats", 0.9, 1.01), ("4", "farthest", 1.2, 2)],
    "residual": [("no skip", "nats@24", 1.9, 2.1), ("no norm", "nats@24", 2, 2.1), ("pre-norm", "nats@2", 1, 1.8)],
    "mask": [("decoder only", "future@8", 0.1, 1e-14), ("no mask", "future@8", 0, 1e-10),
             ("encoder-decoder", "difference@8", 0.1, 1e-7), ("decoder only", "times@8", 0.9, 2)],
    "layers": [("trained", f"{ANTECEDENT}@2", 0.36, 0.45), ("trained", f"{CONTROL}@2", 0.9, 0.8),
               ("trained", f"{WORD}@0", 0.8, 0.88)],
    "data": [("convolution", "accuracy@50", 0.6, 0.72), ("transformer", "accuracy@1500", 0.9, 0.96),
             ("lstm, text", "chrf@100", 19, 21), ("transformer, text", "chrf@9000", 50, 59)],
    "reach": [("patches", "far@0", 1.2, 3), ("convolution", "far@0", 5, 3), ("patches", "near@0", 3.9, 3.7)],
    "scale": [("gpt3 shape", "parameters", 9e9, 5e10), ("gpt3 shape", "flops_ratio", 0.3, 1.6),
              ("c", "seconds", 1000, 300), ("a", "bytes", 40, 18)],
}  # fmt: skip


def test_every_study_has_made_up_numbers() -> None:
    assert set(HOLDS) == set(TURNS) == set(registry.STUDIES)


def judge(name: str, *seeds: Made) -> Any:
    return registry.get_study(name).about.rule.judge(dict(enumerate(seeds, 1)))


@pytest.mark.parametrize("name", HOLDS)
def test_a_rule_can_say_yes(name: str) -> None:
    assert judge(name, HOLDS[name], HOLDS[name]).verdict == "holds"
    assert judge(name, HOLDS[name], {}).verdict == "not decided"  # a seed that was not measured


@pytest.mark.parametrize(
    ("name", "condition", "number", "fails", "is_open"),
    [(name, *turn) for name, turns in TURNS.items() for turn in turns],
)
def test_a_rule_can_say_no_and_nothing(name: str, condition: str, number: str, fails: float, is_open: float) -> None:
    against, between = copy.deepcopy(HOLDS[name]), copy.deepcopy(HOLDS[name])
    assert number in against[condition]
    against[condition][number], between[condition][number] = fails, is_open
    assert judge(name, against, against).verdict == "does not hold here"
    assert judge(name, between, between).verdict == "not decided"
    assert judge(name, HOLDS[name], against).verdict == "not decided"  # the seeds do not agree


def test_a_pronoun_that_was_not_learned_decides_nothing() -> None:
    made = copy.deepcopy(HOLDS["pronoun"])
    made["transformer"]["right"] = 0.2
    assert judge("pronoun", made).verdict == "not decided"
