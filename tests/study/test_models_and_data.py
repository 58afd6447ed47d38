"""Training of models in studies: an interrupted training is not measured."""

import signal
import threading
from pathlib import Path

import pytest

from clearhead.study.harness.models_and_data import grammar_examples, train_model, write_examples
from clearhead.study.harness.protocol import StudyContext
from clearhead.training.loop.callbacks import Callback, NullCallback, Progress

SHAPE = {"model_dim": 8, "feed_forward_dim": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


class InterruptingCallback(NullCallback, Callback):
    """Sends SIGINT (Ctrl-C) at the first update."""

    def progress(self, progress: Progress) -> None:
        if progress.step == 1:
            signal.raise_signal(signal.SIGINT)


def test_a_partially_trained_model_is_not_measured(tmp_path: Path) -> None:
    assert threading.current_thread() is threading.main_thread()
    file = write_examples(tmp_path / "train.tsv", grammar_examples(60, 1))
    with pytest.raises(KeyboardInterrupt):
        train_model(StudyContext(tmp_path, 1.0, 1, InterruptingCallback()), file, 1, SHAPE, steps=50)
    assert train_model(StudyContext(tmp_path, 1.0, 1, NullCallback()), file, 1, SHAPE, steps=2).network is not None
