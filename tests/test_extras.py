"""Messages about missing packages: each names an extra that exists and installs the package."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.errors import MissingPackageError
from clearhead.extras import EXTRAS, require_package

SOURCE = Path(clearhead.__file__).parent
ROOT = SOURCE.parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]


def normalized(requirement: str) -> str:
    """Return the normalized distribution name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; ]", requirement)[0]).lower()


def distributions(module: str) -> set[str]:
    """Return the installed distributions that provide a module."""
    return {normalized(name) for name in importlib.metadata.packages_distributions()[module]}


def imported_modules() -> set[str]:
    """Return the third-party modules that the package imports, also in functions and by name."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require_package":
                assert isinstance(node.args[0], ast.Constant | ast.Name), path
                found |= {str(node.args[0].value)} if isinstance(node.args[0], ast.Constant) else set()
    return {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"clearhead"}


@pytest.mark.parametrize("module", EXTRAS)
def test_extra_exists_and_contains_the_package(module: str) -> None:
    extra = EXTRAS[module]
    assert extra in OPTIONAL
    assert distributions(module) & {normalized(each) for each in OPTIONAL[extra]}


@pytest.mark.parametrize("module", EXTRAS)
def test_message_names_package_and_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError) as raised:
        require_package(module, "this file")
    expected = (
        f"this file needs the package {module}, which is not installed; pip install 'clearhead[{EXTRAS[module]}]'"
    )
    assert str(raised.value) == expected


def test_every_imported_package_is_a_dependency_or_has_an_extra() -> None:
    core = {normalized(each) for each in PROJECT["dependencies"]}
    modules = imported_modules()
    assert {"torch", "PIL", "matplotlib", "onnxscript"} <= modules
    missing = {name for name in modules - EXTRAS.keys() if not distributions(name) & core}
    assert not missing


def test_no_other_file_names_an_extra() -> None:
    writers = [path for path in SOURCE.rglob("*.py") if "clearhead[" in path.read_text(encoding="utf-8")]
    assert writers == [SOURCE / "extras.py"]


def test_documents_name_extras_that_exist() -> None:
    named = set()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for extras in re.findall(r"clearhead\[([\w,-]+)\]", path.read_text(encoding="utf-8")):
            named |= set(extras.split(","))
    assert "parquet" in named
    assert named <= OPTIONAL.keys()


def test_extra_all_contains_all_others() -> None:
    (everything,) = OPTIONAL["all"]
    assert set(everything.removeprefix("clearhead[").removesuffix("]").split(",")) == OPTIONAL.keys() - {"all", "dev"}


def test_base_installation_runs_models_only() -> None:
    base = {normalized(each) for each in PROJECT["dependencies"]}
    assert base == {"numpy", "safetensors", "tokenizers", "pydantic", "typer", "rich", "sentencex"}


def run_without(package: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where a package cannot be imported."""
    code = f"import sys; sys.modules[{package!r}] = None; from clearhead.cli.main import run; run({arguments!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [("fastapi", ["serve", "x"], "serve"), ("torch", ["train", "pairs.tsv", "--out", "x"], "train")],
)
def test_command_without_its_packages_ends_with_one_sentence(
    package: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    done = run_without(package, arguments, tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"clearhead: clearhead {arguments[0]} needs the package {package}, which is not installed; "
        f"pip install 'clearhead[{extra}]'\n"
    )


def test_missing_package_without_an_extra_is_a_bug(tmp_path: Path) -> None:
    done = run_without("rich", ["train", "pairs.tsv", "--out", "x"], tmp_path)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
