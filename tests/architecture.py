"""Generated parts of docs/architecture.md: the package tree and the interfaces, taken from the source code.

python -m tests.architecture    writes them into the document, after a rename or a new docstring
"""

import ast
import re
import textwrap
from pathlib import Path

import clearhead
from tests.test_tree import STAGES

SOURCE = Path(clearhead.__file__).parent
DOCUMENT = Path(__file__).parent.parent / "docs" / "architecture.md"
WIDTH = 120
MARKER = re.compile(r"<!-- (packages|interface \w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def summary(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]


def package_tree() -> str:
    """Return the packages in import order with one line each, sub-packages below their package."""
    entries: list[tuple[str, str]] = []
    for stage in STAGES:
        module = SOURCE / f"{stage}.py"
        if module.exists():
            entries.append((module.name, summary(module)))
            continue
        entries.append((f"{stage}/", summary(SOURCE / stage / "__init__.py")))
        for package in sorted((SOURCE / stage).glob("*/__init__.py")):
            entries.append((f"  {package.parent.name}/", summary(package)))
    width = max(len(name) for name, _ in entries) + 2
    lines = [
        line
        for name, text in entries
        for line in textwrap.wrap(text, WIDTH, initial_indent=name.ljust(width), subsequent_indent=" " * width)
    ]
    return "\n".join(["```", *lines, "```", ""])


def definition(name: str) -> tuple[Path, ast.ClassDef]:
    """Return the file and the definition of a class; class names are unique in the package."""
    matches = [
        (path, node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert len(matches) == 1, f"{len(matches)} classes are named {name}"
    return matches[0]


def interface(name: str) -> str:
    """Return the fields and the signatures of the public methods of a class, in the form of its file."""
    path, node = definition(name)
    source = path.read_text(encoding="utf-8")
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    fields = [f"    {field(member, source)}" for member in node.body if isinstance(member, ast.AnnAssign)]
    methods: list[str] = []
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            methods += [f"    @{ast.unparse(decorator)}" for decorator in member.decorator_list]
            methods += signature(member, source.splitlines())
    lines = [f"class {name}{bases}:  # {path.relative_to(SOURCE).as_posix()}", *fields]
    lines += ["", *methods] if fields and methods else methods  # as `ruff format` has it, which reads documents too
    return "\n".join(["```python", *lines, "```", ""])


def field(member: ast.AnnAssign, source: str) -> str:
    """Return a field with its type and its default; `Field(4, ...)` has the default 4."""
    text = f"{ast.unparse(member.target)}: {ast.get_source_segment(source, member.annotation)}"
    value = member.value
    if isinstance(value, ast.Call):
        value = value.args[0] if value.args else None
    return text if value is None else f"{text} = {ast.get_source_segment(source, value)}"


def signature(member: ast.FunctionDef, lines: list[str]) -> list[str]:
    """Return the lines of a method up to its body."""
    first, body = member.lineno - 1, member.body[0].lineno - 1
    if body == first:
        return [lines[first]]
    head = [*lines[first : body - 1], f"{lines[body - 1]} ..."]
    if len(head[0]) <= WIDTH:
        return head
    start, _, rest = head[0].partition("(")
    arguments, _, end = rest.rpartition(")")
    return [f"{start}(", f"        {arguments}", f"    ){end}"]


def generated(part: str) -> str:
    """Return the text that belongs between the markers of a part."""
    return package_tree() if part == "packages" else interface(part.removeprefix("interface "))


def parts(text: str) -> dict[str, str]:
    """Return the generated parts of the document by their markers."""
    return dict(MARKER.findall(text))


def main() -> None:
    """Write the generated parts."""
    text = DOCUMENT.read_text(encoding="utf-8")
    text = MARKER.sub(lambda match: f"<!-- {match[1]} -->\n{generated(match[1])}<!-- end -->", text)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
