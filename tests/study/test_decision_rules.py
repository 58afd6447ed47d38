"""The decision rule of each study on invented numbers: it can pass, fail and remain undecided."""

import copy
from typing import Any

import pytest

from clearhead.study import registry
from clearhead.study.claims.layers import ANTECEDENT, CONTROL, WORD

Runs = dict[str, dict[str, float]]


def points(name: str, **values: float) -> dict[str, float]:
    """Return the points of a sweep: `points("x", _1=2)` is {"x@1": 2}."""
    return {f"{name}@{key[1:]}": value for key, value in values.items()}


RECURRENT = points("path_length", _10=20, _1000=2000) | points("seconds_per_token", _10=1, _1000=8)
HOLDS: dict[str, Runs] = {
    "long-range": {
        "rnn": points("accuracy", _5=1, _100=0.4, _200=0.2, _1000=0.1),
        "gru": points("accuracy", _5=1, _1000=0.2),
        "lstm": points("accuracy", _5=1, _100=0.95, _200=0.8, _1000=0.3),
        "lstm + attention": points("accuracy", _5=1, _1000=0.97),
        "transformer": points("accuracy", _5=0.99, _1000=1),
    },
    "parallel": {
        **{kind: RECURRENT | points("gradient", _1=1, _1000=1e-9) for kind in ("rnn", "gru", "lstm")},
        "transformer": points("path_length", _10=40, _1000=40) | points("seconds_per_token", _10=1, _1000=3)
                       | points("gradient", _1=1, _1000=1),
    },
    "bottleneck": {
        "without attention": points("bleu", _3=60, _19=20),
        "with attention": points("bleu", _3=65, _19=55),
    },
    "alignment": {
        "diagonal": {"best": 0.6}, "co-occurrence": {"best": 0.3},
        "lstm + attention": {"best": 0.3, "sum_error": 1e-7}, "transformer": {"best": 0.2, "sum_error": 1e-7},
    },
    "pronoun": {"transformer": {"accuracy": 0.9, "antecedent_rate": 0.7, "chance_rate": 0.1,
                                "accuracy_ablated": 0.6, "accuracy_random_ablated": 0.8}},
    "order": {"none": {"states": 1e-15, "pooled": 1e-15},
              **{kind: {"pooled": 0.2} for kind in ("sinusoidal", "learned", "rotary", "relative")}},
    "positions": {"sinusoidal": {"map_error": 1e-6, "random_map_error": 1.1, "within": 1.0},
                  "learned": {"within": 1.05}},
    "scaling": {
        "scaled": points("entropy", _1=3.5, _1024=3.6) | points("gradient", _1=0.1, _1024=0.1),
        "not scaled": points("entropy", _1=3.5, _1024=0.2) | points("gradient", _1=0.1, _1024=0.01),
    },
    "heads": {"1": {"nats": 1.2}, "2": {"nats": 1.1}, "4": {"nats": 1.0, "min_distance": 1, "max_distance": 6},
              "8": {"nats": 1.05}},
    "residual": {"pre-norm": points("nats", _2=2, _24=2.0), "no residual": points("nats", _24=5),
                 "no norm": points("nats", _24=3)},
    "mask": {
        **{kind: points("future_gradient", _8=0) | points("difference", _8=1e-15) | points("time_ratio", _8=9)
           for kind in ("decoder only", "encoder-decoder")}, "no mask": points("future_gradient", _8=0.1),
    },
    "layers": {"trained": points(WORD, _0=1, _2=0.9) | points(ANTECEDENT, _0=0.35, _2=0.9)
                          | points(CONTROL, _0=0.3, _2=0.4)},
    "data": {
        "cnn": points("accuracy", _50=0.9, _1500=0.97), "transformer": points("accuracy", _50=0.7, _1500=0.98),
        "lstm, text": points("chrf", _100=30, _9000=60), "transformer, text": points("chrf", _100=20, _9000=75),
    },
    "reach": {"vision transformer": {"max_distance@0": 4, "min_distance@0": 1},
              "uniform attention": {"max_distance@0": 3.9}, "cnn": {"max_distance@0": 1.4}},
    "scale": {
        "a": {"parameters": 1e5, "flops": 1e8, "seconds": 1, "bytes_per_parameter": 16, "flops_ratio": 1},
        "b": {"parameters": 1e6, "flops": 1e9, "seconds": 10, "bytes_per_parameter": 16, "flops_ratio": 1},
        "c": {"parameters": 1e7, "flops": 1e10, "seconds": 90, "bytes_per_parameter": 16, "flops_ratio": 1},
        "gpt3 shape": {"parameters": 1.7e11, "flops": 1e18, "flops_ratio": 1.1},
    },
}  # fmt: skip
# study -> (condition, number, a value that refutes the claim, a value that leaves it undecided)
CHANGES: dict[str, list[tuple[str, str, float, float]]] = {
    "long-range": [("rnn", "accuracy@200", 0.95, 0.7), ("lstm", "accuracy@100", 0.3, 0.7),
                   ("lstm", "accuracy@1000", 1.0, 0.7), ("transformer", "accuracy@1000", 0.2, 0.8)],
    "parallel": [("lstm", "path_length@1000", 25, 300), ("transformer", "path_length@1000", 4000, 200),
                 ("lstm", "gradient@1000", 0.5, 0.01), ("transformer", "gradient@1000", 1e-4, 0.01),
                 ("transformer", "seconds_per_token@1000", 20, 6)],
    "bottleneck": [("without attention", "bleu@19", 59.5, 48), ("with attention", "bleu@19", 20, 38)],
    "alignment": [("transformer", "sum_error", 0.1, 1e-3), ("lstm + attention", "best", 0.7, 0.55),
                  ("co-occurrence", "best", 0.05, 0.15)],
    "pronoun": [("transformer", "antecedent_rate", 0.1, 0.2), ("transformer", "accuracy_ablated", 0.8, 0.77)],
    "order": [("none", "states", 0.1, 1e-8), ("none", "pooled", 0.1, 1e-8), ("rotary", "pooled", 0, 1e-4)],
    "positions": [("sinusoidal", "map_error", 0.5, 0.01), ("sinusoidal", "random_map_error", 0.01, 0.3),
                  ("learned", "within", 1.5, 1.2)],
    "scaling": [("not scaled", "entropy@1024", 3.5, 2.5), ("not scaled", "gradient@1024", 0.1, 0.05),
                ("scaled", "entropy@1", 9, 5)],
    "heads": [("1", "nats", 0.9, 1.01), ("8", "nats", 0.9, 1.01), ("4", "max_distance", 1.2, 2)],
    "residual": [("no residual", "nats@24", 1.9, 2.1), ("no norm", "nats@24", 2, 2.1), ("pre-norm", "nats@2", 1, 1.8)],
    "mask": [("decoder only", "future_gradient@8", 0.1, 1e-14), ("no mask", "future_gradient@8", 0, 1e-10),
             ("encoder-decoder", "difference@8", 0.1, 1e-7), ("decoder only", "time_ratio@8", 0.9, 2)],
    "layers": [("trained", f"{ANTECEDENT}@2", 0.36, 0.45), ("trained", f"{CONTROL}@2", 0.9, 0.8),
               ("trained", f"{WORD}@0", 0.8, 0.88)],
    "data": [("cnn", "accuracy@50", 0.6, 0.72), ("transformer", "accuracy@1500", 0.9, 0.96),
             ("lstm, text", "chrf@100", 19, 21), ("transformer, text", "chrf@9000", 50, 59)],
    "reach": [("vision transformer", "max_distance@0", 1.2, 3), ("cnn", "max_distance@0", 5, 3),
              ("vision transformer", "min_distance@0", 3.9, 3.7)],
    "scale": [("gpt3 shape", "parameters", 9e9, 5e10), ("gpt3 shape", "flops_ratio", 0.3, 1.6),
              ("c", "seconds", 1000, 300), ("a", "bytes_per_parameter", 40, 18)],
}  # fmt: skip


def test_every_study_has_invented_numbers() -> None:
    assert set(HOLDS) == set(CHANGES) == set(registry.STUDIES)


def judge(name: str, *seeds: Runs) -> Any:
    return registry.get_study(name).info.rule.judge(dict(enumerate(seeds, 1)))


@pytest.mark.parametrize("name", HOLDS)
def test_a_rule_can_hold(name: str) -> None:
    assert judge(name, HOLDS[name], HOLDS[name]).verdict == "holds"
    assert judge(name, HOLDS[name], {}).verdict == "not decided"  # the second seed was not measured


@pytest.mark.parametrize(
    ("name", "condition", "number", "refuting", "undecided"),
    [(name, *change) for name, changes in CHANGES.items() for change in changes],
)
def test_a_rule_can_fail_and_remain_undecided(
    name: str, condition: str, number: str, refuting: float, undecided: float
) -> None:
    refuted, open_case = copy.deepcopy(HOLDS[name]), copy.deepcopy(HOLDS[name])
    assert number in refuted[condition]
    refuted[condition][number], open_case[condition][number] = refuting, undecided
    assert judge(name, refuted, refuted).verdict == "does not hold here"
    assert judge(name, open_case, open_case).verdict == "not decided"
    assert judge(name, HOLDS[name], refuted).verdict == "not decided"  # the seeds disagree


def test_an_unlearned_pronoun_leaves_the_claim_undecided() -> None:
    runs = copy.deepcopy(HOLDS["pronoun"])
    runs["transformer"]["accuracy"] = 0.2
    assert judge("pronoun", runs).verdict == "not decided"
