"""The Python API refuses arguments without effect and does not modify its inputs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import clearhead
from clearhead.config import DecodingConfig
from clearhead.errors import ClearheadError, ConfigError, InspectionError
from tests.trained_model import Trained

TEXT = "The small dog sees the old cat."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"settings": DecodingConfig(), "prefix": "Der"},
            "expected settings or prefix, got both; set prefix in settings",
        ),
        ({"settings": DecodingConfig(), "beam_size": 2}, "expected settings or beam_size, got both"),
        ({"sampling": {"temperature": 5}}, "decoding.sampling has no meaning for clearhead translate without"),
        ({"diversity_penalty": 5}, "decoding.diversity_penalty has no meaning without decoding.beam_groups"),
        ({"method": "sample", "beam_size": 3}, "decoding.beam_size has no meaning with decoding.method=sample"),
    ],
)
def test_settings_that_would_change_nothing(arguments: dict[str, Any], message: str, trained: Trained) -> None:
    with pytest.raises(ConfigError, match=message):
        clearhead.load(trained.folder).translate(TEXT, **arguments)


@pytest.mark.parametrize("arguments", [{"method": "average"}, {"method": "zero", "texts": [TEXT]}])
def test_a_mistyped_ablation(arguments: dict[str, Any], trained: Trained) -> None:
    with pytest.raises(InspectionError, match='expected method="zero", or method="mean" with texts'):
        clearhead.load(trained.folder).with_ablated(["cross.0.0"], **arguments)


@pytest.mark.parametrize(
    "arguments", [{"length_penalty": 2000}, {"max_length": "00"}, {"sampling": {"temperature": 1e-40}}]
)
def test_settings_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DecodingConfig.model_validate(arguments)


def test_interleaved_streams_do_not_change_the_number_of_threads(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    torch.set_num_threads(2)
    first, second = (model.stream_translation(TEXT, beam_size=1) for _ in range(2))
    next(first)
    next(second)
    assert torch.get_num_threads() == 2, "between parts the time is the caller's"
    parts = [*first], [*second]
    assert parts[0] == parts[1] and torch.get_num_threads() == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_training_asks_for_the_device_that_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match="--device cuda: torch finds no GPU here"):
        clearhead.train(tmp_path / "pairs.tsv", out=tmp_path / "run", device="cuda")
