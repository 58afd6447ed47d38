"""The HTTP API for models of every family, compared with the results of the library."""

import base64
import io
import threading
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from clearhead.inspection.analyses.ablation import ablation_effect
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.runtime import Cancellation
from clearhead.serving import json_views
from clearhead.serving.app import make_app
from clearhead.serving.middleware import Limits, TraceLock
from tests.inspection.small_models import IMAGE_MODELS, TEXT_MODELS, small_model, text_for, write_image

LIMITS = Limits(characters=3000, source_tokens=60, stored_traces=3, wait_seconds=0.2)
NAME = "transformer"


@pytest.fixture(scope="module")
def client() -> TestClient:
    models = {
        NAME: small_model(NAME),
        "second": small_model("post-norm, rotary"),
        "labels": small_model("encoder for labels"),
    }
    return TestClient(make_app(models, LIMITS), raise_server_exceptions=False)


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/v1/trace", json={"text": text_for(NAME), **body})
    assert response.status_code == 200, response.text
    summary: dict[str, Any] = response.json()
    return summary


def error_of(response: httpx2.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"code", "message", "param"}, body
    error: dict[str, Any] = body["error"]
    return error


def test_health_models_and_schema(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    assert client.get("/readyz").json()["models"] == [NAME, "second", "labels"]
    models = client.get("/v1/models").json()["models"]
    assert [model["name"] for model in models] == [NAME, "second", "labels"]
    assert models[0]["generates_text"] and not models[2]["generates_text"]
    assert {"/v1/translate", "/v1/trace", "/v1/models", "/livez", "/readyz"} <= set(
        client.get("/openapi.json").json()["paths"]
    )


def test_translate_returns_the_translations_of_the_library(client: TestClient) -> None:
    texts = [text_for(NAME), "The grass is old."]
    translations = client.post("/v1/translate", json={"text": texts, "beam_size": 3, "n_best": 2}).json()[
        "translations"
    ]
    model = small_model(NAME)
    expected = model.translate_n_best(texts, 2, model.decoding(beam_size=3))
    for translation, n_best in zip(translations, expected, strict=True):
        assert translation["text"] == n_best[0].text and translation["score"] == pytest.approx(n_best[0].score)
        assert [candidate["text"] for candidate in translation["n_best"]] == [candidate.text for candidate in n_best]


def test_summary_and_tensors_equal_the_trace(client: TestClient) -> None:
    summary, trace = ask(client, beam_size=3), small_model(NAME).trace(text_for(NAME), beam_size=3)
    assert summary["target_text"] == trace.target_text and summary["attention"] == []
    assert summary["log_prob"] == pytest.approx(trace.log_prob)
    assert [node["token"] for node in summary["tree"]] == [node.candidate.token for node in trace.tree]
    assert [head["entropy"] for head in summary["heads"]] == pytest.approx(
        [head.entropy for head in head_statistics(trace)]
    )
    for attention in trace.attention:
        for head in range(len(attention.weights_HTS)):
            url = f"/v1/trace/{summary['id']}/attention/{attention.kind}/{attention.layer}/{head}"
            record = client.get(url).json()
            np.testing.assert_allclose(record["weights"], attention.weights_HTS[head], atol=1e-7)
            assert record["allowed"] == attention.allowed_TS.tolist()
            packed = client.get(f"{url}?base64=true").json()
            weights = np.frombuffer(base64.b64decode(packed["weights"]), "<f4").reshape(packed["rows"], -1)
            np.testing.assert_array_equal(weights, attention.weights_HTS[head])
            assert (
                np.frombuffer(base64.b64decode(packed["allowed"]), bool).tolist()
                == attention.allowed_TS.ravel().tolist()
            )


def test_arithmetic_gives_the_weights(client: TestClient) -> None:
    summary = ask(client)
    for kind, row in (("encoder", 3), ("decoder", 2), ("cross", 1)):
        arithmetic = client.get(f"/v1/trace/{summary['id']}/arithmetic/{kind}/1/1/{row}").json()
        scores = np.array(arithmetic["keys"]) @ np.array(arithmetic["query"]) * arithmetic["scale"]
        scores[~np.array(arithmetic["allowed"])] = -np.inf
        weights = np.exp(scores - scores.max())
        np.testing.assert_allclose(weights / weights.sum(), arithmetic["weights"], atol=1e-5)


def test_thumbnails_show_every_head_and_renormalise(client: TestClient) -> None:
    trace_id = ask(client)["id"]
    trace = small_model(NAME).trace(text_for(NAME))
    records = client.get(f"/v1/trace/{trace_id}/thumbnails").json()["heads"]
    assert len(records) == sum(len(attention.weights_HTS) for attention in trace.attention)
    first = np.frombuffer(base64.b64decode(records[0]["pixels"]), np.uint8).reshape(records[0]["rows"], -1) / 255
    np.testing.assert_allclose(first, trace.attention[0].weights_HTS[0], atol=1 / 255)
    for thumbnail in client.get(f"/v1/trace/{trace_id}/thumbnails?hide_special=true").json()["heads"]:
        pixels = np.frombuffer(base64.b64decode(thumbnail["pixels"]), np.uint8).reshape(
            thumbnail["rows"], thumbnail["columns"]
        )
        positions = trace.source if thumbnail["kind"] != "decoder" else trace.inputs
        assert thumbnail["columns"] == sum(not position.is_special for position in positions)
        if thumbnail["kind"] == "encoder":
            np.testing.assert_allclose(pixels.sum(1) / 255, 1, atol=thumbnail["columns"] / 255)


def test_gray_color_images_are_read_as_grayscale(tmp_path: Path) -> None:
    """Browsers save color PNGs: gray pixels are read as grayscale, others are rejected by an error without a path."""
    client = TestClient(make_app({"one": small_model("patches")}))
    pixels = np.asarray(Image.open(write_image(tmp_path)))
    answers = []
    for image in (Image.fromarray(pixels), Image.fromarray(np.dstack([pixels] * 3)).convert("RGBA")):
        file = io.BytesIO()
        image.save(file, "PNG")
        answers.append(ask(client, text="", image=base64.b64encode(file.getvalue()).decode())["candidates"])
    assert answers[0] == answers[1]
    coloured = io.BytesIO()
    Image.fromarray(np.dstack([pixels, pixels, 255 - pixels])).save(coloured, "PNG")
    for content in (coloured.getvalue(), coloured.getvalue()[:60], b"nothing"):
        body = {"text": "", "image": base64.b64encode(content).decode()}
        error = error_of(client.post("/v1/trace", json=body))
        assert error["code"] == "bad_image" and error["message"].startswith("image: ")


def test_thumbnails_keep_the_largest_weights() -> None:
    weights = np.random.default_rng(1).random((101, 61)).astype(np.float32)
    small_one = json_views.shrink(weights)
    assert small_one.shape == (json_views.THUMBNAIL_SIZE, json_views.THUMBNAIL_SIZE)
    assert small_one.max() == weights.max()
    starts = [index * 101 // json_views.THUMBNAIL_SIZE for index in range(json_views.THUMBNAIL_SIZE)]
    assert small_one[0].max() == weights[: starts[1]].max()


def test_a_forced_prefix_is_continued(client: TestClient) -> None:
    best = ask(client, beam_size=2)
    alternative = next(
        candidate["token"]
        for candidate in best["candidates"][1]
        if candidate["token"] not in (best["output_ids"][1], 0, 2, 3)
    )
    forced = ask(client, beam_size=2, prefix=[best["output_ids"][0], alternative])
    assert forced["output_ids"][:2] == [best["output_ids"][0], alternative]
    assert len(forced["output_ids"]) > 2 and 2 not in forced["output_ids"]
    again = ask(client, beam_size=2, prefix=best["output_ids"][:1])
    assert again["output_ids"][:1] == best["output_ids"][:1]


def test_greedy_search_continues_its_own_prefix_unchanged(client: TestClient) -> None:
    best = ask(client, beam_size=1)
    for length in (1, 2, len(best["output_ids"])):
        assert ask(client, beam_size=1, prefix=best["output_ids"][:length])["output_ids"] == best["output_ids"]


def test_ablation_returns_the_effect_of_the_library(client: TestClient) -> None:
    summary, model = ask(client, beam_size=2), small_model(NAME)
    trace = model.trace(text_for(NAME), beam_size=2)
    for head_ref in ("cross.1.0", "encoder.0", "decoder_feed_forward.1"):
        answer = client.post("/v1/ablation", json={"trace": summary["id"], "ablated": [head_ref]}).json()
        expected = ablation_effect(model, model.with_ablated([head_ref]), trace, model.decoding(beam_size=2))
        assert answer["after"] == expected.after.target_text
        assert answer["log_prob_change"] == pytest.approx(expected.log_prob_change, abs=1e-5)
    effects = client.get(f"/v1/trace/{summary['id']}/effects").json()["effects"]
    effect = next(candidate for candidate in effects if candidate["head_ref"] == "cross.1.0")
    expected = ablation_effect(model, model.with_ablated(["cross.1.0"]), trace, model.decoding(beam_size=2))
    assert effect["log_prob_change"] == pytest.approx(expected.log_prob_change, abs=1e-5)
    assert len(effects) == len(summary["heads"])


@pytest.mark.parametrize("name", ["transformer", "post-norm, rotary", "T5", "encoder for labels"])
def test_without_positions_the_encoder_ignores_word_order(name: str) -> None:
    client = TestClient(make_app({"one": small_model(name)}))
    trace_id = ask(client, text=text_for(name))["id"]
    order = client.get(f"/v1/trace/{trace_id}/positions").json()["order"]
    assert order["with"]["difference"] > 1e-3
    assert order["without"]["difference"] < 1e-5


@pytest.mark.parametrize("name", [*TEXT_MODELS, *IMAGE_MODELS])
def test_every_family_has_all_views_or_a_clear_error(name: str, tmp_path: Path) -> None:
    client = TestClient(make_app({"one": small_model(name)}))
    body: dict[str, Any] = {"text": text_for(name)}
    if name in IMAGE_MODELS:
        body = {"text": "", "image": base64.b64encode(write_image(tmp_path).read_bytes()).decode()}
    summary = ask(client, **body)
    trace_id = summary["id"]
    assert client.get(f"/v1/trace/{trace_id}/thumbnails").status_code == 200
    for view in ("lens", "attribution", "effects", "positions"):
        response = client.get(f"/v1/trace/{trace_id}/{view}")
        assert response.status_code == 200 or error_of(response)["code"] == "bad_inspection", (view, response.text)
    for head in summary["heads"]:
        url = f"/v1/trace/{trace_id}/attention/{head['kind']}/{head['layer']}/{head['head']}"
        assert len(client.get(url).json()["weights"]) > 0
    assert client.get("/v1/models").status_code == 200


BAD: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"text": ""}, 400, "empty_text", "text"),
    ({"text": "  \n"}, 400, "empty_text", "text"),
    ({"text": "word " * 10_000}, 413, "too_long", "text"),
    ({"text": "word " * 100}, 400, "bad_text", None),
    ({"text": "dog", "beam_size": 99}, 400, "bad_setting", "beam_size"),
    ({"text": "dog", "beam_size": "many"}, 422, "invalid_request", "beam_size"),
    ({"text": "dog", "colour": 1}, 422, "invalid_request", "colour"),
    ({"text": "dog", "model": "nobody"}, 404, "no_such_model", "model"),
    ({"text": "dog", "ablated": ["cross.9.0"]}, 400, "bad_inspection", None),
    ({"text": "dog", "ablated": ["nonsense"]}, 400, "bad_inspection", None),
    ({"text": "dog", "target": "x", "tokens": [5]}, 400, "bad_setting", "target"),
    ({"text": "dog", "tokens": [99_999]}, 400, "bad_inspection", None),
    ({"text": "dog", "prefix": []}, 400, "bad_inspection", None),
    ({"text": "dog", "hypothesis": 7}, 400, "bad_setting", "hypothesis"),
    ({"text": "dog", "image": "AAAA"}, 400, "wrong_input", "image"),
    ({"text": "dog", "model": "labels", "target": "nowhere"}, 400, "bad_inspection", None),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), BAD)
def test_bad_input_gets_a_clear_error(
    client: TestClient, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    response = client.post("/v1/trace", json=body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, param), error
    assert len(error["message"]) > 10


@pytest.mark.parametrize("text", ["🙂🙂 dog", "הכלב הזקן", "<script>alert(1)</script>", "a\u0000b", "e\u0301"])
def test_texts_of_any_script_are_unchanged(client: TestClient, text: str) -> None:
    assert ask(client, text=text)["source_text"] == text


def test_missing_heads_traces_and_paths(client: TestClient) -> None:
    trace_id = ask(client)["id"]
    for path in ("attention/cross/9/0", "attention/cross/0/9", "attention/sideways/0/0", "arithmetic/cross/0/0/99"):
        response = client.get(f"/v1/trace/{trace_id}/{path}")
        assert (response.status_code, error_of(response)["code"]) == (400, "bad_inspection")
    assert error_of(client.get("/v1/trace/nothing/lens"))["code"] == "no_such_trace"
    assert error_of(client.get("/v2"))["code"] == "not_found"
    assert error_of(client.get("/v1/trace"))["code"] == "method_not_allowed"
    assert error_of(client.post("/v1/trace", content=b"{"))["code"] == "invalid_request"


def test_bodies_and_hosts_are_limited() -> None:
    app = make_app({"one": small_model(NAME)}, Limits(body_bytes=200), frozenset({"localhost"}))
    local = TestClient(app, base_url="http://localhost:8000")
    assert local.post("/v1/trace", json={"text": "dog"}).status_code == 200
    assert error_of(local.post("/v1/trace", json={"text": "d" * 300}))["code"] == "too_large"
    chunks = (b"x" * 90 for _ in range(4))
    assert error_of(local.post("/v1/trace", content=chunks))["code"] == "too_large"
    assert error_of(TestClient(app, base_url="http://evil.example").get("/livez"))["code"] == "wrong_host"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_other_pages_cannot_start_computations(client: TestClient, content_type: str | None) -> None:
    """Browsers send these types to any server; JSON they send only if a preflight request (OPTIONS) allows it."""
    headers = {"Origin": "http://evil.example", **({"Content-Type": content_type} if content_type else {})}
    response = client.post("/v1/trace", content=b'{"text": "dog one"}', headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (422, "invalid_request")
    preflight = client.options(
        "/v1/trace", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    for checked in (response, preflight):
        assert not [name for name in checked.headers if name.startswith("access-control-")]
        assert checked.headers["cross-origin-resource-policy"] == "same-origin"


def test_dropped_traces_are_computed_again_unchanged(client: TestClient) -> None:
    first = ask(client, text="dog one")
    assert ask(client, text="dog one")["id"] == first["id"]
    for number in range(LIMITS.stored_traces):
        ask(client, text=f"dog {number}")
    assert error_of(client.get(f"/v1/trace/{first['id']}"))["code"] == "no_such_trace"
    assert ask(client, text="dog one") == first


def test_the_lock_is_held_by_one_request() -> None:
    lock, inside, leave = TraceLock(0.05), threading.Event(), threading.Event()

    def hold() -> None:
        with lock.hold(Cancellation()):
            inside.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    with pytest.raises(Exception, match="another trace"), lock.hold(Cancellation()):
        pass
    leave.set()
    holder.join()
    with lock.hold(Cancellation()):
        pass


def test_one_trace_at_a_time_over_http(client: TestClient) -> None:
    trace_id = ask(client)["id"]
    with client.app.state.trace_store.lock.hold(Cancellation()):  # type: ignore[attr-defined]
        for response in (
            client.post("/v1/trace", json={"text": "dog"}),
            client.get(f"/v1/trace/{trace_id}/lens"),
            client.post("/v1/ablation", json={"trace": trace_id, "ablated": ["cross.0.0"]}),
        ):
            assert (response.status_code, error_of(response)["code"]) == (503, "busy")
            assert int(response.headers["retry-after"]) > 0
    assert client.get(f"/v1/trace/{trace_id}/lens").status_code == 200


def test_every_response_has_the_security_policy(client: TestClient) -> None:
    for path in ("/livez", "/", "/v1/nothing", "/openapi.json"):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'self'") and "unsafe" not in policy
