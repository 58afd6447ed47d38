"""Check of an installed wheel; `make wheel` runs it in an environment with clearhead and its dependencies only."""

import importlib.util
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Exit with a message if the installation is incomplete."""
    from clearhead import runtime
    from clearhead.runtime import _core

    assert "site-packages" in runtime.__file__, f"not the installed package: {runtime.__file__}"
    assert importlib.util.find_spec("torch") is None, "torch is installed: the environment is not empty"
    assert runtime.is_available(), runtime.why_unavailable()
    assert "generic" in _core.instruction_sets()
    command = Path(sys.executable).with_name("clearhead")
    subprocess.run([command, "--help"], check=True, stdout=subprocess.DEVNULL)
    training = subprocess.run([command, "train", "x.tsv", "--out", "x"], check=False, capture_output=True, text=True)
    assert training.returncode == 2, training.stderr
    assert "pip install 'clearhead[train]'" in training.stderr, training.stderr
    print(f"The wheel works without torch; instruction set {runtime.instruction_set()}.")


if __name__ == "__main__":
    main()
