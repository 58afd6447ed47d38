"""Traces force the output that the model's engine has found; changed networks run in torch."""

import json
from typing import Any

import pytest

import clearhead
from clearhead import runtime
from clearhead.cli.main import main
from clearhead.engines import native_generator
from clearhead.errors import DecodingError
from tests.trained_model import Trained

pytestmark = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())
TEXTS = ["The old dog eats the grass.", "A cat sees the house."]


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_a_trace_forces_the_tokens_of_the_engine(
    trained: Trained, compute_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, steps = clearhead.load(trained.folder, compute_type=compute_type), list[Any]()
    step = native_generator.NativeGenerator.step

    def count_step(self: native_generator.NativeGenerator, *arguments: Any, **options: Any) -> Any:
        steps.append(arguments)
        return step(self, *arguments, **options)

    monkeypatch.setattr(native_generator.NativeGenerator, "step", count_step)
    for text in TEXTS:
        translation, trace = model.translate(text), model.trace(text)
        assert steps, "the search of the trace steps through the native engine"
        assert trace.target_text == translation.text
        best = trace.hypotheses[0]
        assert (best.score, best.token_log_probs) == (translation.score, translation.token_log_probs)


@pytest.mark.parametrize("options", [[], ["--engine", "torch"], ["--compute-type", "int8"]], ids=" ".join)
def test_inspect_explains_the_output_of_the_same_engine(
    trained: Trained, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(trained.folder), TEXTS[0], "--json", *options]) == 0
    named = dict(zip(options[::2], options[1::2], strict=True))
    engine, compute_type = named.get("--engine"), named.get("--compute-type", "float32")
    trace = clearhead.load(trained.folder, engine=engine, compute_type=compute_type).trace(TEXTS[0])
    hypothesis = json.loads(capsys.readouterr().out)["hypotheses"][0]
    assert (hypothesis["score"], hypothesis["token_log_probs"]) == (
        trace.hypotheses[0].score,
        [*trace.hypotheses[0].token_log_probs],
    )


def test_a_changed_network_runs_in_torch(trained: Trained) -> None:
    model = clearhead.load(trained.folder, engine="native")
    changed = model.with_ablated(["cross.0"])
    assert str(model.engine_choice) == "native"
    assert str(changed.engine_choice) == "torch (the network was changed)"
    assert changed.translate(TEXTS[0]).log_prob != model.translate(TEXTS[0]).log_prob
    with pytest.raises(DecodingError, match="this model was changed in memory"):
        changed.translate(TEXTS[0], engine="native")
