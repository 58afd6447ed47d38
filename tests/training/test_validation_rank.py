"""Ranking of validations, statistics that replicas share, and recognition of parallel files."""

import itertools

import pytest
import torch
from torch import nn

from clearhead.cli.main import _is_language_pair
from clearhead.model.normalization import BatchNorm
from clearhead.tasks.trainable.seq2seq import validation_decoding
from clearhead.tasks.trainable.task import Validation
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas


def validation(score: float, loss: float) -> Validation:
    return Validation(loss, score, "accuracy", "", ("", "", ""))


def test_equal_scores_are_ranked_by_their_loss() -> None:
    assert validation(100.0, 0.1).rank > validation(100.0, 0.2).rank
    assert validation(99.0, 0.1).rank < validation(100.0, 9.0).rank


def test_running_statistics_are_those_of_all_replicas() -> None:
    model = nn.Sequential(BatchNorm(3)).train()
    parts = [torch.full((5, 2, 3), 1.0), torch.full((5, 2, 3), 3.0)]
    with ThreadReplicas[torch.Tensor, torch.Tensor](model, 2, 2) as replicas:
        replicas.run(lambda _, replica, part: replica(part), parts)
        replicas.gather_gradients()
        for replica in replicas.models:
            figures = dict(replica.named_buffers())
            torch.testing.assert_close(figures["0.running_mean"], torch.full((3,), 0.2))  # a tenth of the mean, 2


@pytest.mark.parametrize(
    ("first", "second", "are"),
    [("a.en", "a.de", True), ("d/a.en.gz", "d/a.de.gz", True), ("v.txt", "a.txt", False), ("a.tsv", "--out", False)],
)
def test_parallel_files_differ_in_their_last_suffix_only(first: str, second: str, are: bool) -> None:
    assert _is_language_pair(first, second) is are


def test_output_in_validation_is_limited_by_its_source_alone() -> None:
    assert [validation_decoding().max_output_length(length) for length in (1, 4, 7, 100)] == [11, 16, 20, 160]


def test_a_validation_with_a_score_outranks_one_without() -> None:
    def unscored(loss: float) -> Validation:
        return Validation(loss, None, "bleu", "", ("", "", ""))

    ranked = [unscored(float("nan")), unscored(2.0), unscored(1.0), validation(0.0, 9.0)]
    assert all(worse.rank < better.rank for worse, better in itertools.pairwise(ranked))
