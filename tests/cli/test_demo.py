"""`clearhead demo`, in miniature and in full."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.bundle import read_manifest
from clearhead.cli import demo
from clearhead.cli.main import main

EXPECTED = [
    r"^BLEU \d+\.\d+ nrefs:1\|case:mixed",
    r"^chrF \d+\.\d+ nrefs:1\|case:mixed",
    r"Five sentences never seen in training:\n(  .+\n  → .*\n\n){5}",
    r"alignment error rate \d\.\d\d against the grammar's gold",
    r"The model lies in .*demo\. Next:\n  echo .*clearhead translate",
]


def test_demo_in_miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "HELD_OUT", 11)
    arguments = ["demo", "--out", str(tmp_path / "demo"), "--pairs", "1000", "--minutes", "0.05", "--threads", "1"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    for pattern in EXPECTED:
        assert re.search(pattern, first.out, re.M), pattern
    assert re.search(r"^step \d+/\d+  loss .* tok/s", first.err, re.M)  # plain lines: stderr is no terminal here
    began = read_manifest(tmp_path / "demo").training["began"]

    assert main(arguments) == 0
    again = capsys.readouterr()
    assert "holds a finished model: it is shown, not trained again" in again.out
    assert again.out[again.out.index("BLEU") :] == first.out[first.out.index("BLEU") :]
    assert read_manifest(tmp_path / "demo").training["began"] == began


@pytest.mark.slow
def test_demo_in_full(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clearhead", "demo", "--out", str(tmp_path / "demo")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"^BLEU (\d+\.\d+) ", output, re.M)
    assert found and float(found[1]) >= 95
