"""docs/architecture.md agrees with the code: package tree, interfaces, and the files in the data-flow diagrams.

The paths and names in docs/extending.md, docs/quickstart.md and CONTRIBUTING.md exist, too.
"""

import ast
import re
import shutil
from pathlib import Path

import pytest

from clearhead import runtime
from tests import architecture
from tests.data_flow import executed_files
from tests.test_tree import STAGES
from tests.trained_model import SETTINGS, Trained

TEXT = architecture.DOCUMENT.read_text(encoding="utf-8")
FLAT_TEXT = " ".join(TEXT.split())
PARTS = architecture.parts(TEXT)
DIAGRAMS = re.findall(r"^```mermaid\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
MAX_FILES_OF_A_REQUEST = 20
MAX_FILES_OF_AN_UPDATE = 20  # outside of model/ and kernels/


def paths_in(diagram: str) -> set[str]:
    """Return the files that a diagram names."""
    return set(re.findall(r"\w[\w/]*\.py", diagram))


@pytest.mark.parametrize("part", PARTS)
def test_generated_part_is_current(part: str) -> None:
    assert PARTS[part] == architecture.generated(part), "run python -m tests.architecture"


def test_document_has_the_packages_and_the_interfaces() -> None:
    assert TEXT.count("<!-- end -->") == len(PARTS)
    assert PARTS.keys() >= {
        "packages", "interface Generator", "interface Engine", "interface PaddedLayout", "interface Task",
        "interface TrainingTask", "interface Observer", "interface RunLogger", "interface Callback",
        "interface DecodingConfig",
    }  # fmt: skip


def test_packages_are_in_import_order() -> None:
    listed = re.findall(r"^(\w+)(?:/|\.py) ", PARTS["packages"], re.MULTILINE)
    assert listed == STAGES


def test_summary_is_the_first_sentence(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Reads `a.b` and\nc. Not more.\n\nNor this.\n"""\n', encoding="utf-8")
    assert architecture.summary(path) == "Reads `a.b` and c."


@pytest.mark.skipif(not runtime.is_available(), reason="the diagram shows the native engine")
def test_diagram_of_a_translation_names_the_executed_files(trained: Trained) -> None:
    diagram = DIAGRAMS[0]
    answer = re.search(r"subgraph request .*?^  end$", diagram, re.DOTALL | re.MULTILINE)
    assert answer
    command = ["translate", str(trained.folder)]
    all_files = executed_files(command, stdin="The dog sleeps.\n")
    files = executed_files(command, within="answer_lines", stdin="The dog sleeps.\n")
    assert paths_in(answer[0]) == set(files)
    assert paths_in(diagram) == set(all_files)
    assert len(files) <= MAX_FILES_OF_A_REQUEST, sorted(files)
    assert f"{len(files)} files run, at most {MAX_FILES_OF_A_REQUEST} are allowed" in FLAT_TEXT


def test_diagram_of_an_update_names_the_executed_files(trained: Trained, tmp_path: Path) -> None:
    pairs = shutil.copy(trained.train, tmp_path / "pairs.tsv")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = ["train", str(pairs), "--out", str(tmp_path / "out"), "--steps", "3", "--threads", "2", *settings]
    files = executed_files(command, within="Trainer._update")
    assert paths_in(DIAGRAMS[1]) == set(files)
    outside = {file for file in files if not file.startswith(("model/", "kernels/"))}
    assert len(outside) <= MAX_FILES_OF_AN_UPDATE, sorted(outside)
    assert f"{len(outside)} files run, at most {MAX_FILES_OF_AN_UPDATE} are allowed" in FLAT_TEXT


def test_recorded_files_are_those_of_executed_functions(tmp_path: Path) -> None:
    """Importing is not executing, and only calls during the chosen function count."""
    files = executed_files(["--version"], within="no such function")
    assert files == {}
    files = executed_files(["--version"])
    assert "cli/main.py" in files and "api/translation.py" not in files
    assert "main" in files["cli/main.py"]


ROOT = architecture.DOCUMENT.parent.parent
DOCUMENTS = [
    architecture.DOCUMENT,
    ROOT / "docs" / "extending.md",
    ROOT / "docs" / "quickstart.md",
    ROOT / "CONTRIBUTING.md",
]
OUTSIDE = {"SIGTERM", "CI", "CXX", "CXXFLAGS", "LDFLAGS", "README.md", "TOML"}  # other names than those of the code


def quoted(path: Path) -> list[str]:
    """Return the words in backticks outside of code blocks; files that an example creates are left out."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [word for word in re.findall(r"`([^`\n]+)`(?! \(new)", text) if word not in OUTSIDE]


def defined_names() -> set[str]:
    """Return the names of all classes, functions, arguments, attributes and variables of the package and its tests."""
    names: set[str] = set()
    for path in [*architecture.SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for attribute in ("name", "id", "attr", "arg"):
                names.add(str(getattr(node, attribute, "")))
    return names


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_quoted_paths_exist(path: Path) -> None:
    for word in quoted(path):
        if (
            re.fullmatch(r"(?:[\w.-]+/)+|[\w./-]+/[\w.-]+\.\w+", word)
            and "*" not in word
            and not word.startswith("runs/")
        ):
            assert any((base / word).exists() for base in (ROOT, architecture.SOURCE, ROOT / "docs")), word


def test_quoted_names_are_defined() -> None:
    names = defined_names()
    checked = 0
    for path in DOCUMENTS[:2]:
        for word in quoted(path):
            if re.fullmatch(r"[A-Z]\w+|[a-z]+_[a-z_]+", word):
                assert word in names, f"{path.name}: {word}"
                checked += 1
    assert checked >= 10
