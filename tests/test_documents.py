"""Documents: links lead to files and headings that exist, and the decision records are complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"),
                    *(ROOT / "docs").rglob("*.md")])  # fmt: skip
HEADINGS = ["Context", "Decision", "Alternatives", "Consequences"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IN_REPOSITORY = re.compile(r"`((?:src|tests|benchmarks|docs|recipes|\.github)/[\w./-]*)`")
DATE = re.compile(r"^Accepted on \d{4}-\d\d-\d\d\b", re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """Return the text of a document without its code blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the URL fragments of a document's headings, as GitHub derives them from the text."""
    titles = re.findall(r"^#+ +(.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def title(path: Path) -> tuple[int, str]:
    """Return the number and the title of a record."""
    found = re.match(r"# (\d+)\. (.+)\n", path.read_text(encoding="utf-8"))
    assert found, name(path)
    return int(found[1]), found[2]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for link in LINK.findall(prose(path)):
        if re.match(r"\w+:", link):
            continue
        file, _, fragment = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), f"{name(path)} links to {link}"
        if fragment:
            assert fragment in anchors(target), f"{name(path)} links to {link}"


def test_headings_become_anchors(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# `--minutes` and S1, S2\n\n```\n# comment\n```\n## Has it learned?\n", encoding="utf-8")
    assert anchors(path) == {"--minutes-and-s1-s2", "has-it-learned"}


def test_records_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in RECORDS]
    assert numbers == [*range(1, len(RECORDS) + 1)]
    assert numbers == [title(path)[0] for path in RECORDS]


def test_index_lists_every_record_with_its_title() -> None:
    rows = re.findall(r"^\| \[(\d+)\]\(([\w.-]+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert rows == [(str(title(path)[0]), path.name, title(path)[1]) for path in RECORDS]


@pytest.mark.parametrize("path", RECORDS, ids=name)
def test_record_has_a_date_and_all_sections(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert DATE.search(text)
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        assert section.strip()


@pytest.mark.parametrize("path", [*RECORDS, DECISIONS / "README.md"], ids=name)
def test_paths_in_records_exist(path: Path) -> None:
    for named in IN_REPOSITORY.findall(path.read_text(encoding="utf-8")):
        assert (ROOT / named).exists(), f"{name(path)} names {named}"


def test_records_refer_to_packages_not_to_modules() -> None:
    """Records name packages only, because modules are renamed without updating the records."""
    named = {each for path in RECORDS for each in IN_REPOSITORY.findall(path.read_text(encoding="utf-8"))}
    assert "src/clearhead/kernels/" in named
    assert not {each for each in named if each.startswith("src/") and not each.endswith("/")}
