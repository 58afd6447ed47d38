"""ONNX graphs compute the values of the network, step by step, for any number of rows and any length."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

from clearhead.interop.onnx.generators import write_generator
from tests.interop.test_ctranslate2 import END, LONGEST, PAD, VOCAB, network

SOURCES = {"one token": (1, 1), "one sentence": (1, 7), "several, padded": (4, 11), "as long as can be": (2, LONGEST)}


def read(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(np.array(result)) for name, result in zip(names, results, strict=True)}


def empty_past(session: Any, rows: int) -> dict[str, Tensor]:
    found = {}
    for given in session.get_inputs():
        if given.name.startswith("past"):
            _, heads, _, width = given.shape
            found[given.name] = torch.zeros(rows, heads, 0, width)
    return found


def sources(rows: int, length: int) -> Tensor:
    src_NS = torch.randint(END + 1, VOCAB, (rows, length))
    src_NS[:, -1] = END
    if rows > 2:
        src_NS[2:, length // 2 :] = PAD
    return src_NS


def check_translator(folder: Path, model: Any, steps: int) -> None:
    encoder, decoder = read(folder / "encoder.onnx"), read(folder / "decoder.onnx")
    for rows, length in SOURCES.values():
        src_NS = sources(rows, length)
        read_source = run(encoder, {"src": src_NS})
        with torch.inference_mode():
            memory = model.encode(src_NS)
            tokens_N1, state = model.start(memory, 1)
        is_real_N1S1 = (src_NS != PAD)[:, None, :, None]  # outputs at padding positions are undefined
        for layer, source in enumerate(memory.keys_values):
            for name, kept in (
                (f"source_k_{layer}", source.k_HK.transpose(1, 2)),
                (f"source_v_{layer}", source.v_HE.transpose(1, 2)),
            ):
                torch.testing.assert_close(read_source[name] * is_real_N1S1, kept * is_real_N1S1, atol=1e-4, rtol=1e-4)
        past = empty_past(decoder, rows)
        for _ in range(steps):
            outputs = run(decoder, {"token": tokens_N1, **read_source, **past})
            with torch.inference_mode():
                step = model.step(tokens_N1, state)
            torch.testing.assert_close(outputs.pop("logits"), step.logits_RTV[:, 0], atol=1e-4, rtol=1e-4)
            past = {name.removesuffix("_next"): tensor for name, tensor in outputs.items()}
            state, tokens_N1 = step.state, torch.randint(END + 1, VOCAB, (rows, 1))


def test_encoder_and_steps_of_a_translator(tmp_path: Path) -> None:
    model = network("transformer", num_encoder_layers=1, num_decoder_layers=2)
    write_generator(model, tmp_path)
    check_translator(tmp_path, model, steps=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"positions": "rotary", "norm_placement": "post", "activation": "gelu_tanh"},
        {"positions": "relative", "norm": "rms", "bias": False, "gated": True, "scale_output": True},
        {"positions": "learned", "norm": "group", "norm_groups": 4, "key_dim": 6, "value_dim": 3},
    ],
)
def test_other_translators_up_to_the_last_position(settings: dict[str, Any], tmp_path: Path) -> None:
    model = network("transformer", num_encoder_layers=1, num_decoder_layers=2, **settings)
    write_generator(model, tmp_path)
    check_translator(tmp_path, model, steps=LONGEST)


def test_steps_of_a_language_model(tmp_path: Path) -> None:
    model = network("decoder", positions="rotary")
    write_generator(model, tmp_path)
    decoder = read(tmp_path / "decoder.onnx")
    ids_NT = torch.randint(END + 1, VOCAB, (3, LONGEST))
    with torch.inference_mode():
        expected_NTV = model.logits(model(ids_NT))
    past = empty_past(decoder, 3)
    for position in range(LONGEST):
        outputs = run(decoder, {"token": ids_NT[:, position : position + 1], **past})
        torch.testing.assert_close(outputs.pop("logits"), expected_NTV[:, position], atol=1e-4, rtol=1e-4)
        past = {name.removesuffix("_next"): tensor for name, tensor in outputs.items()}
    assert not (tmp_path / "encoder.onnx").exists()
