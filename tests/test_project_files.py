"""Files for tools and code hosts: versions agree with the lock, workflows are restricted and name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LOCK = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
BY_PRE_COMMIT = {"pre-commit-hooks"}


def test_pre_commit_uses_the_locked_versions() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = dict(re.findall(r"\[([\w.-]+)==([\w.]+)\]", text))
    assert pins.keys() == {"ruff", "clang-format"} | BY_PRE_COMMIT
    assert {name: pins[name] for name in pins.keys() - BY_PRE_COMMIT} == {
        name: LOCK[name] for name in pins.keys() - BY_PRE_COMMIT
    }


def test_workflows_are_those_of_the_documents() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [path.name for path in WORKFLOWS] == ["docs.yml", "tests.yml", "wheels.yml"]
    for path in WORKFLOWS:
        assert f"`{path.name}`" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_restricted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"permissions:\n((?: +.*\n)+)", text) == ["  contents: read\n"]
    assert re.search(r"^concurrency:$", text, re.MULTILINE)
    jobs = text.partition("\njobs:\n")[2]
    assert len(re.findall(r"^  \w+:$", jobs, re.MULTILINE)) == jobs.count("timeout-minutes:") == jobs.count("runs-on:")
    for used in re.findall(r"uses: (.+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_files_and_targets_of_a_workflow_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for named in re.findall(r"\btests/[\w/]+\.py\b", text):
        assert (ROOT / named).is_file(), named
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named_targets = set(re.findall(r"run: make ([\w-]+)", text))
    assert named_targets and named_targets <= targets


def test_tested_versions_of_python_are_allowed() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (lowest,) = re.findall(r'requires-python = ">=([\d.]+)"', project)
    versions = re.findall(r'"(3\.\d+)"', (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert versions[0] == lowest
