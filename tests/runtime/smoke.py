"""Check of an installed wheel; `make wheel` runs it in an environment with clearhead and its dependencies only.

Its argument is a folder with models, made by `python -m tests.runtime.smoke_models FOLDER` where torch is installed.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

TEXT = "The old dog eats the grass.\n\nA cat.\n"
# task of the model -> arguments after its folder, for each command to run
COMMANDS = {
    "translate": [["translate"], ["translate", "--compute-type", "int8", "--beam", "1"], ["embed"], ["info"]],
    "classify": [["classify", "--json"]],
    "tag": [["tag"]],
    "lm": [["generate", "The", "--max-tokens", "5"]],
    "mlm": [["fill", "The [MASK] eats."], ["embed", "--json"]],
}


def main(models: Path) -> None:
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
    for task, commands in COMMANDS.items():
        for verb, *options in commands:
            line = [str(command), verb, str(models / task / "model"), *options]
            process = subprocess.run(line, check=False, capture_output=True, text=True, input=TEXT)
            assert process.returncode == 0 and process.stdout.strip(), f"{line}: {process.stderr}"
    print(f"The wheel works without torch; instruction set {runtime.instruction_set()}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
