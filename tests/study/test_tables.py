"""Derived tables of the studies (costs, crossings of curves), and the models and data of the long-range study."""

import math

import pytest

from clearhead.grammar import generate, split_words
from clearhead.model.parameters import count_parameters
from clearhead.study.claims import compute_scaling, data_efficiency
from clearhead.study.claims.long_range import FAMILIES, TRANSFORMER, _shape, matched_width, pronoun_lines
from clearhead.study.harness.models_and_data import untrained_network
from clearhead.study.harness.protocol import Cell, Findings


def test_costs_match_a_calculation() -> None:
    """A model of 3.2 million parameters is trained on 64 million tokens, which are 20 updates."""
    size = compute_scaling.ModelSize("x", 3.2e6, 2e7, 1e10)
    assert size.seconds(1) == pytest.approx(2e7 * 64e6 / 1e10)
    exchange = 20 * 8 * 3.2e6 * 99 / 100 / 1.25e9
    assert size.seconds(100) == pytest.approx(2e7 * 64e6 / 1e12 + exchange)
    assert compute_scaling.ModelSize("tiny", 10, 60, 1e10).seconds(2) == pytest.approx(
        60 * 200 / 2e10 + 8 * 10 / 2 / 1.25e9
    )


FINDINGS = Findings({
    Cell("2 x 8", 1): {"parameters": 100.0, "flops_per_token": 600.0, "flops_per_second": 1e6},
    Cell("2 x 8", 2): {"parameters": 100.0, "flops_per_token": 600.0, "flops_per_second": 3e6},
    Cell("gpt3 shape", 1): {"parameters": 1.75e11, "flops_per_token": 1.05e12},
    Cell("4 x 8", 1): {"parameters": 200.0, "flops_per_token": 1200.0, "flops_per_second": 4e6},
})  # fmt: skip


def test_sizes_without_a_measured_time_use_the_speed_of_the_largest_measured_size() -> None:
    assert [(size.name, size.flops_per_second) for size in compute_scaling.model_sizes(FINDINGS)] == [
        ("2 x 8", 2e6),
        ("4 x 8", 4e6),
        ("gpt3 shape", 4e6),
    ]
    first, second = compute_scaling.tables(FINDINGS)
    assert first.rows[-1][:4] == ["gpt3 shape", "1.75e+11", "3.7e+24", "2.8e+03"]
    assert any("4e+06 operations per second" in row for row in second.rows)
    assert all(row[2].startswith(("measured", "assumed")) for row in second.rows[1:])
    assert all(len(row) == len(table.rows[0]) for table in (first, second) for row in table.rows)
    assert (
        compute_scaling.tables(Findings({})) == [] and compute_scaling.time_chart(Findings({})).series[0].points == []
    )
    assert [len(one.points) for one in compute_scaling.time_chart(FINDINGS).series] == [3, 3, 3]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.5 seconds"), (90, "1.5 minutes"), (7200, "2 hours"), (86400 * 3, "3 days"),
     (86400 * 365.25 * 12345, "12,345 years")],
)  # fmt: skip
def test_format_duration(seconds: float, text: str) -> None:
    assert compute_scaling.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("gaps", "where"),
    [
        ({10: 2.0, 1000: -2.0}, "at about 100"), ({10: 3.0, 100: 1.0, 10_000: -1.0}, "at about 1,000"),
        ({10: 2.0, 1000: 0.5}, "nowhere"), ({10: -1.0, 1000: -3.0}, "ahead from the start"),
        ({10: -1.0, 1000: 3.0}, "ahead at first, behind at last"),
        ({10: 2.0, 1000: -2.0, 5000: 1.0}, "at about 100, behind again at last"),
        ({10: 1.0, 100: 0.0}, "at about 100"),
    ],
)  # fmt: skip
def test_crossing(gaps: dict[int, float], where: str) -> None:
    assert str(data_efficiency.crossing(gaps)) == where


def test_table_of_crossings() -> None:
    findings = Findings({
        Cell(data_efficiency.CNN, 1): {"accuracy@10": 0.8, "accuracy@1000": 0.9},
        Cell(data_efficiency.VISION_TRANSFORMER, 1): {"accuracy@10": 0.7, "accuracy@1000": 1.0},
        Cell(data_efficiency.TEXT_LSTM, 1): {"chrf@10": 30.0, "chrf@1000": 60.0},
        Cell(data_efficiency.TEXT_TRANSFORMER, 1): {"chrf@10": 20.0, "chrf@1000": 50.0},
    })  # fmt: skip
    [table] = data_efficiency.tables(findings)
    assert table.rows[1:] == [
        [data_efficiency.VISION_TRANSFORMER, data_efficiency.CNN, "accuracy", "at about 100"],
        [data_efficiency.TEXT_TRANSFORMER, data_efficiency.TEXT_LSTM, "chrf", "nowhere"],
    ]
    assert data_efficiency.tables(Findings({})) == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("vocabulary", [32, 1100])
def test_families_have_similar_sizes(family: str, vocabulary: int) -> None:
    def size(kind: str) -> int:
        shape = _shape(kind, matched_width(kind, 48, vocabulary))
        return count_parameters(untrained_network("translate", 1, {**shape, "vocab_size": vocabulary}))

    assert abs(math.log(size(family) / size(TRANSFORMER))) < 0.1


def test_targets_of_pronoun_lines_are_german_pronouns() -> None:
    lines = pronoun_lines(20, 1, "train", (5, 8))
    assert len(lines) > 15 and {target for _, target in lines} <= {"er", "sie", "es", "ihn", "ihm", "ihr"}
    examples = {" ".join(split_words(example.source)): example for example in generate(20, 1, "train", (5, 8))}
    for source, target in lines:
        example = examples[source]
        assert example.pronoun is not None
        assert split_words(example.target)[example.pronoun.target_index].lower() == target
        assert 5 <= example.pronoun.distance <= 8
