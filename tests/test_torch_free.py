"""Inference without torch: every command that runs a model, with torch installed and without."""

import json
import subprocess
import sys
from typing import Any

import httpx2
import pytest

from clearhead import runtime
from tests.serving.browser import free_port, wait_for
from tests.tasks.all_tasks import Models, write_files
from tests.terminal import Finished, run_process

pytestmark = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())

TRAINING_PACKAGES = ("torch", "sacrebleu", "PIL")
RUN = """
import sys
from clearhead.cli.main import main
code = main(sys.argv[1:])
packages = ("clearhead.training", "clearhead.tasks.trainable")
tasks = [name for name in sys.modules if name.startswith("clearhead.tasks.") and name.endswith(".training")]
print("training imported:", *(name for name in sys.modules if name.startswith(packages)), *tasks, file=sys.stderr)
print("torch imported:", sys.modules.get("torch") is not None, file=sys.stderr)
sys.exit(code)
"""
BLOCKED = "".join(f"import sys; sys.modules[{name!r}] = None\n" for name in TRAINING_PACKAGES) + RUN
LINES = "The old dog eats the grass.\n\nA cat.\n"

# task of the model, arguments with {} for its folder and {pairs} for a file of pairs, standard input
COMMANDS: dict[str, tuple[str, list[str], str]] = {
    "translate": ("translate", ["translate", "{}"], LINES),
    "n-best": ("translate", ["translate", "{}", "--beam", "3", "--n-best", "2", "--json"], LINES),
    "int8": ("translate", ["translate", "{}", "--compute-type", "int8"], LINES),
    "sample": ("translate", ["translate", "{}", "--sample", "--seed", "3"], LINES),
    "prefix": ("translate", ["translate", "{}", "--prefix", "The"], LINES),
    "include": ("translate", ["translate", "{}", "--include", "dog"], LINES),
    "stream": ("translate", ["translate", "{}", "--beam", "1", "--stream"], LINES),
    "alternatives": ("translate", ["translate", "{}", "--alternatives-at", "0", "--n-best", "2"], LINES),
    "denoise": ("denoise", ["translate", "{}"], "The old <x0> eats the grass.\n"),
    "generate": ("lm", ["generate", "{}", "The", "--max-tokens", "5"], ""),
    "generate lines": ("lm", ["generate", "{}", "--lines", "--json", "--beam", "2", "--max-tokens", "3"], "The\nA\n"),
    "classify": ("classify", ["classify", "{}", "--json"], LINES),
    "tag": ("tag", ["tag", "{}"], LINES),
    "fill": ("mlm", ["fill", "{}", "The old [MASK] eats the grass."], ""),
    "embed": ("mlm", ["embed", "{}"], LINES),
    "embed with a translator": ("translate", ["embed", "{}", "--json"], LINES),
    "score": ("translate", ["score", "{}", "{pairs}"], ""),
    "align": ("translate", ["align", "{}", "{pairs}"], ""),
    "info": ("translate", ["info", "{}"], ""),
    "evaluate": ("classify", ["evaluate", "{}", "{labels}"], ""),
    "evaluate lm": ("lm", ["evaluate", "{}", "{text}"], ""),
    "evaluate mlm": ("mlm", ["evaluate", "{}", "{text}"], ""),
    "evaluate denoise": ("denoise", ["evaluate", "{}", "{text}"], ""),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    tasks = {"pairs": "translate", "labels": "classify", "text": "lm"}
    for name in tasks:
        (folder / name).mkdir()
    return {name: str(write_files(folder / name, task)) for name, task in tasks.items()}


def run(models: Models, files: dict[str, str], name: str, program: str, **more: Any) -> Finished:
    task, arguments, text = COMMANDS[name]
    folder = str(models[task])
    return run_process([word.format(folder, **files) for word in arguments], text, program=("-c", program), **more)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_run_without_torch(name: str, models: Models, files: dict[str, str]) -> None:
    without = run(models, files, name, BLOCKED)
    assert without.code == 0, without.stderr.decode()
    assert without.stdout
    with_torch = run(models, files, name, RUN)
    assert (with_torch.code, with_torch.stdout) == (0, without.stdout)
    assert with_torch.stderr.endswith(b"training imported:\ntorch imported: False\n"), with_torch.stderr.decode()


@pytest.mark.parametrize(
    "name", ["translate", "generate", "classify", "tag", "fill", "embed", "score", "align", "info"]
)
@pytest.mark.parametrize("terminals", [{"stderr"}, {"stdin", "stdout", "stderr"}], ids=["stderr", "all"])
def test_a_terminal_does_not_import_torch(
    name: str, terminals: set[str], models: Models, files: dict[str, str]
) -> None:
    found = run(models, files, name, RUN, terminals=frozenset(terminals))
    assert found.code == 0 and b"torch imported: False" in found.stderr, found.stderr.decode()


def test_the_python_api_runs_without_torch(models: Models) -> None:
    code = BLOCKED.replace(RUN, "") + (
        "import sys, clearhead\n"
        "translator = clearhead.load(sys.argv[1])\n"
        "print(translator.translate('The dog.').text)\n"
        "print(translator.engine_choice)\n"
        "print(clearhead.load(sys.argv[2], compute_type='int8').classify(['The dog.'])[0].label)\n"
        "packages = {name.split('.')[1] for name in sys.modules if name.startswith('clearhead.')}\n"
        "print(*sorted(packages & {'training', 'interop', 'model', 'serving', 'study', 'cli'}))\n"
    )
    found = run_process([models["translate"], models["classify"]], program=("-c", code))
    assert found.code == 0, found.stderr.decode()
    _, engine, _, unused = found.stdout.splitlines()
    assert (engine, unused) == (b"native", b"")


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("image", ["classify", "{}", "a.png"], "pip install 'clearhead[train]'"),
        ("translate", ["inspect", "{}", "The dog."], "pip install 'clearhead[train]'"),
        ("translate", ["translate", "{}", "--engine", "torch"], "pip install 'clearhead[train]'"),
    ],
    ids=["images", "traces", "torch engine"],
)
def test_commands_that_need_torch_name_the_extra(task: str, arguments: list[str], message: str, models: Models) -> None:
    found = run_process([word.format(models[task]) for word in arguments], LINES, program=("-c", BLOCKED))
    assert found.code == 2, found.stderr.decode()
    assert message in found.stderr.decode()


NO_CORE = "import clearhead.runtime.availability as a\na.CORE = 'clearhead.runtime._missing'\n"


VERBS = ("translate", "generate", "classify", "tag", "embed", "fill", "score", "align")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CI", "CLEARHEAD_REQUIRE_CORE"):
        monkeypatch.delenv(variable, raising=False)


def refusal(name: str, program: str, models: Models, files: dict[str, str]) -> str:
    """Return the one line of a command that must fail, or of a server that must not start."""
    if name == "serve":
        command = [sys.executable, "-c", program, "serve", str(models["translate"]), "--port", str(free_port())]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)  # a server that starts never ends
        found = Finished(done.returncode, done.stdout, done.stderr)
    else:
        found = run(models, files, name, program)
    messages = found.stderr.decode().splitlines()
    others = ("training imported", "torch imported", "warning: ", "cross.0")
    lines = [line for line in messages if not line.startswith(others)]
    assert (found.code, found.stdout) == (2, b""), found.stderr.decode()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("name", [*VERBS, "serve"])
def test_with_neither_core_nor_torch_both_remedies_are_named(name: str, models: Models, files: dict[str, str]) -> None:
    error = refusal(name, BLOCKED.replace(RUN, NO_CORE + RUN), models, files)
    assert "C++17 compiler" in error and "reinstall clearhead" in error and "pip install 'clearhead[train]'" in error


def test_info_reports_that_no_engine_is_available(models: Models, files: dict[str, str]) -> None:
    program = BLOCKED.replace(RUN, NO_CORE + RUN)
    found = run(models, files, "info", program)
    [line] = [line for line in found.stdout.decode().splitlines() if line.startswith("engine")]
    assert found.code == 0
    assert line.split()[1] == "none" and "neither the C++ core nor torch is installed" in line
    shown = run_process(["info", str(models["translate"]), "--json"], program=("-c", program))
    engine = json.loads(shown.stdout)["engine"]
    assert engine["name"] == "none" and "neither the C++ core nor torch" in engine["reason"]


@pytest.mark.parametrize(
    ("variable", "engine"),
    [("", "torch (The C++ core is not built;"), ("CI", "none (The C++ core is not built;")],
)
def test_info_without_a_core_names_torch_where_it_may_be_used(
    variable: str, engine: str, models: Models, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    found = run(models, files, "info", NO_CORE + RUN)
    [line] = [line for line in found.stdout.decode().splitlines() if line.startswith("engine")]
    assert found.code == 0 and engine in line, line
    assert ("torch does not replace it, since CI is set" in line) == bool(variable)


@pytest.mark.parametrize("name", ["translate", "serve"])
def test_int8_without_a_core_is_refused_in_one_line(name: str, models: Models, files: dict[str, str]) -> None:
    program = NO_CORE + RUN.replace("sys.argv[1:]", "[*sys.argv[1:], '--compute-type', 'int8']")
    error = refusal(name, program, models, files)
    assert "int8 needs the native engine" in error and "The C++ core is not built; install a C++17 compiler" in error


def test_without_a_core_torch_is_used_and_reported_once(models: Models) -> None:
    found = run_process(["translate", models["translate"]], LINES, program=("-c", NO_CORE + RUN))
    native = run_process(["translate", models["translate"]], LINES, program=("-c", RUN))
    assert found.code == 0 and found.stdout == native.stdout
    [said, imported] = [line for line in found.stderr.decode().splitlines() if "torch" in line]
    assert said.startswith("The slower torch engine is used. The C++ core is not built;")
    assert imported == "torch imported: True"


@pytest.mark.parametrize("variable", ["CI", "CLEARHEAD_REQUIRE_CORE"])
@pytest.mark.parametrize("name", ["translate", "serve"])
def test_in_ci_a_missing_core_is_an_error(
    name: str, variable: str, models: Models, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    error = refusal(name, NO_CORE + RUN, models, files)
    assert "The C++ core is not built" in error and f"torch does not replace it, since {variable}" in error


def test_in_ci_torch_may_be_chosen(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    asked = run_process(["translate", models["translate"], "--engine", "torch"], LINES, program=("-c", NO_CORE + RUN))
    assert asked.code == 0 and asked.stdout


def test_the_server_translates_without_torch(models: Models) -> None:
    port = free_port()
    command = ["serve", str(models["translate"]), "--port", str(port), "--threads", "1"]
    process = subprocess.Popen([sys.executable, "-c", BLOCKED, *command], stderr=subprocess.PIPE)
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        [card] = httpx2.get(f"http://127.0.0.1:{port}/v1/models").json()["models"]
        body = {"text": "The old dog eats."}
        translated = httpx2.post(f"http://127.0.0.1:{port}/v1/translate", json=body)
        traced = httpx2.post(f"http://127.0.0.1:{port}/v1/trace", json=body)
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert card["num_parameters"] > 0 and translated.json()["translations"][0]["tokens"]
    assert (traced.status_code, traced.json()["error"]["code"]) == (501, "not_installed")
    assert "clearhead[train]" in traced.json()["error"]["message"]
    assert process.returncode == 0 and b"Traceback" not in said


def test_the_server_does_not_import_torch_to_translate(models: Models) -> None:
    port = free_port()
    command = ["serve", str(models["translate"]), "--port", str(port), "--threads", "1"]
    process = subprocess.Popen([sys.executable, "-c", RUN, *command], stderr=subprocess.PIPE)
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        translated = httpx2.post(f"http://127.0.0.1:{port}/v1/translate", json={"text": "The old dog eats."})
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert translated.json()["translations"][0]["tokens"]
    assert process.returncode == 0 and said.endswith(b"torch imported: False\n"), said.decode()
