"""One sentence read on arrays equals the encoder's modules, for every option; numpy keeps to one thread meanwhile."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.model.arrays import can_read, read
from clearhead.model.blas import _libraries, _set_threads, one_blas_thread
from clearhead.model.flat import flatten
from clearhead.model.transformer import Transformer
from tests.model.options import close, each_combination, ids, sources, transformer

MORE: list[dict[str, Any]] = [
    {"norm": "sample"},
    {"norm": "none"},
    {"residual": False, "norm_placement": "post"},
    {"activation": "silu", "gated": True},
    {"scale_attention": False},
    {"value_dim": 5},
]


def check(options: dict[str, Any]) -> None:
    model = transformer(options)
    for length in (1, 5):
        src_1S = ids(1, length)
        whole_SD = model.encoder(model.source_embedding(src_1S), None)[0][0].detach()
        with torch.inference_mode():
            flat = flatten(model.source_embedding, model.encoder, model._flat_encoder)
            assert flat is not None and can_read(flat, src_1S)
            found_SD = torch.from_numpy(read(flat, src_1S[0].tolist()))
            close(found_SD, whole_SD, is_touchy=options.get("norm") == "group")
            close(model._read(src_1S)[0][0], found_SD)


@each_combination
def test_a_sentence_is_read_as_the_modules_read_it(options: dict[str, Any]) -> None:
    check(options)


@pytest.mark.parametrize("options", MORE, ids=lambda each: "-".join(map(str, each)))
def test_rare_options(options: dict[str, Any]) -> None:
    check(options)


@torch.inference_mode()
def test_what_is_left_to_the_flat_stack() -> None:
    def can(model: Transformer, src_NS: torch.Tensor) -> bool:
        flat = flatten(model.source_embedding, model.encoder, model._flat_encoder)
        assert flat is not None
        return can_read(flat, src_NS, src_NS[:, None, None] != model.config.pad_id)

    model = transformer({}).float()
    assert can(model, sources()[:1])
    assert not can(model, sources()), "two sentences"
    assert not can(model, sources()[1:]), "padding"
    with torch.autocast("cpu", torch.bfloat16):
        assert not can(model, sources()[:1]), "other types on the way"
    assert not can(model.bfloat16(), sources()[:1]), "numbers that numpy has not"


def threads() -> list[int]:
    return [each.num_threads for each in _libraries()]


def test_numpy_multiplies_on_one_thread_until_the_last_has_left() -> None:
    if not _libraries():
        pytest.skip("this numpy's library does not tell its threads")
    before = threads()
    for each in _libraries():
        _set_threads(each, 2)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait()

    try:
        beside = threading.Thread(target=other)
        with one_blas_thread():
            assert set(threads()) == {1}
            beside.start()
            entered.wait()
        assert set(threads()) == {1}, "the other one is still inside"
        np.dot(np.ones((1, 500)), np.ones((500, 500)))
        leave.set()
        beside.join()
        assert set(threads()) == {2}
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            1 / 0  # noqa: B018
        assert set(threads()) == {2}
    finally:
        leave.set()
        for each, count in zip(_libraries(), before, strict=True):
            _set_threads(each, count)
