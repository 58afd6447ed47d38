"""Rules of the source tree: order of imports, public names, light imports."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import clearhead

SOURCE = Path(clearhead.__file__).parent
# The stages in the order in which data flows; a file imports from its own stage and from those before it.
STAGES = [
    "errors", "files", "json_format", "extras", "config", "data", "grammar", "kernels", "model", "bundle", "runtime",
    "decoding", "engines", "interop", "evaluation", "tasks", "training", "inspection", "api", "serving", "study", "cli",
]  # fmt: skip


def stage(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the stages that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("clearhead.")}


def test_files_import_only_from_stages_before_them() -> None:
    for path in SOURCE.rglob("*.py"):
        own = stage(path)
        if own in {"__init__", "__main__"}:
            continue
        assert own in STAGES, f"{path} belongs to no stage"
        late = {name for name in imports(path) if STAGES.index(name) > STAGES.index(own)}
        assert not late, f"{path} imports from {late}, which come after {own}"


def test_no_module_has_a_meaningless_name() -> None:
    names = {part for path in SOURCE.rglob("*.py") for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert not names & {"utils", "helpers", "common", "misc"}


def test_class_names_are_unique() -> None:
    defined = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(str(path.relative_to(SOURCE)))
    assert not {name: paths for name, paths in defined.items() if len(paths) > 1}


def test_packages_are_small_and_described() -> None:
    """A folder has about a dozen modules at most; `cli` has one per command, `model` the flat list of docs/model.md."""
    for init in SOURCE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))), f"{init} has no docstring"
        modules = [path for path in init.parent.glob("*.py") if path.name != "__init__.py"]
        limit = {"cli": 30, "model": 19}.get(init.parent.name, 14)
        assert len(modules) <= limit, f"{init.parent} has {len(modules)} modules: a sub-package is missing"


def test_public_names_are_there() -> None:
    assert sorted(clearhead.__all__) == dir(clearhead)
    for name in clearhead.__all__:
        assert getattr(clearhead, name) is not None


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, clearhead, clearhead.cli.main; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_search_and_runtime_do_not_import_torch() -> None:
    names = [
        f"clearhead.{path.relative_to(SOURCE).with_suffix('').as_posix().replace('/', '.')}"
        for package in ("decoding", "runtime")
        for path in (SOURCE / package).glob("*.py")
    ]
    assert "clearhead.decoding.search" in names
    code = (
        f"import importlib, sys; [importlib.import_module(name) for name in {names}]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for path in (path for package in ("decoding", "runtime") for path in (SOURCE / package).glob("*.py")):
        assert "model" not in imports(path), f"{path} imports from model"


def test_the_model_has_no_state_besides_its_weights() -> None:
    """Speed belongs to `kernels`: no numpy, no locks, and no caches that `train` or `_apply` would have to clear."""
    for path in (SOURCE / "model").rglob("*.py"):
        tree = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        modules = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module for node in tree if isinstance(node, ast.ImportFrom) and node.module}
        assert not {name.split(".")[0] for name in modules} & {"numpy", "threading"}, path
        members = [member for node in tree if isinstance(node, ast.ClassDef) for member in node.body]
        defined = {member.name for member in members if isinstance(member, ast.FunctionDef)}
        assigned = [target for member in members if isinstance(member, ast.Assign) for target in member.targets]
        defined |= {target.id for target in assigned if isinstance(target, ast.Name)}
        assert not defined & {"train", "eval", "_apply"}, path


def test_only_the_restricted_reader_of_checkpoints_unpickles() -> None:
    reader = SOURCE / "interop" / "checkpoint_tensors.py"
    assert reader.read_text().count("torch.load") == 1
    assert 'torch.load(path, map_location="cpu", weights_only=True)' in reader.read_text()
    for path in {*SOURCE.rglob("*.py")} - {reader}:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        modules = {alias.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)
                   for alias in node.names}  # fmt: skip
        assert not modules & {"pickle", "dill", "joblib", "marshal", "shelve"}, path
        if "load" in names:
            assert "torch.load" not in path.read_text(), path
