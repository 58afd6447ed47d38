"""`clearhead demo`, with a tiny corpus and with the default settings."""

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from clearhead.bundle import read_manifest
from clearhead.cli import demo
from clearhead.cli.main import main
from tests.serving.browser import free_port, wait_for
from tests.terminal import STREAMS, run_process

TERMINAL = frozenset(STREAMS)

EXPECTED = [
    r"^BLEU \d+\.\d+ nrefs:1\|case:mixed",
    r"^chrF \d+\.\d+ nrefs:1\|case:mixed",
    r"Five sentences never seen in training:\n(  .+\n  → .*\n\n){5}",
    r"alignment error rate \d\.\d\d against the grammar's gold",
    r"Model saved to .*demo\. Next:\n  echo .*clearhead translate",
]


def test_demo_with_a_tiny_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "HELD_OUT", 11)
    arguments = ["demo", "--out", str(tmp_path / "demo"), "--pairs", "1000", "--minutes", "0.05", "--threads", "1"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    for pattern in EXPECTED:
        assert re.search(pattern, first.out, re.M), pattern
    assert re.search(r"^step \d+/\d+  loss .* tok/s", first.err, re.M)  # plain lines: stderr is not a terminal
    began = read_manifest(tmp_path / "demo").training["began"]

    assert main(arguments) == 0
    rerun = capsys.readouterr()
    assert "contains a finished model, so training is skipped" in rerun.out
    assert rerun.out[rerun.out.index("BLEU") :] == first.out[first.out.index("BLEU") :]
    assert read_manifest(tmp_path / "demo").training["began"] == began


@pytest.mark.slow
@pytest.mark.alone
def test_the_demo_and_its_next_commands_in_a_terminal(tmp_path: Path) -> None:
    """Run the demo and the commands that it suggests; streams are terminals unless redirected."""
    folder, data = tmp_path / "demo", tmp_path / "demo-data"
    shown = run_process(["demo", "--out", folder], terminals=TERMINAL, threads=os.cpu_count() or 1, timeout=1200)
    assert shown.code == 0, shown.stderr
    output = shown.stdout.decode()
    for pattern in EXPECTED:
        assert re.search(pattern, output, re.M), pattern
    found = re.search(r"^BLEU (\d+\.\d+) ", output, re.M)
    assert found and float(found[1]) >= 95
    assert "tok/s" in shown.stderr.decode()

    evaluated = run_process(["evaluate", folder, data / "test.tsv"], terminals=TERMINAL)
    assert evaluated.code == 0 and f"BLEU {found[1]} nrefs" in evaluated.stdout.decode()

    sources = [line.split("\t")[0] for line in (data / "test.tsv").read_text(encoding="utf-8").splitlines()]
    text = "\n".join(sources) + "\n"
    to_a_file = run_process(["translate", folder], text, frozenset({"stderr"}))
    assert to_a_file.code == 0 and b"lines/s" in to_a_file.stderr
    translations = to_a_file.stdout.decode().splitlines()
    assert len(translations) == len(sources) and all(translations)
    assert run_process(["translate", folder], text).stdout == to_a_file.stdout

    page = tmp_path / "inside.html"
    inspected = run_process(["inspect", folder, sources[0], "--html", page], terminals=TERMINAL)
    assert inspected.code == 0 and page.read_text(encoding="utf-8").startswith("<!doctype html>")

    port = free_port()

    def ask(process: "subprocess.Popen[bytes]") -> None:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        answer = httpx2.post(f"http://127.0.0.1:{port}/v1/translate", json={"text": sources[0]}).json()
        assert answer["translations"][0]["text"] == translations[0]
        process.send_signal(signal.SIGTERM)

    served = run_process(["serve", folder, "--port", port], terminals=TERMINAL, while_running=ask)
    assert served.code == 0 and f"http://127.0.0.1:{port}" in served.stderr.decode()

    exported = run_process(["export", folder, "--to", "onnx", tmp_path / "onnx"], terminals=TERMINAL)
    assert exported.code == 0, exported.stderr
    assert {"encoder.onnx", "decoder.onnx"} <= {path.name for path in (tmp_path / "onnx").iterdir()}
