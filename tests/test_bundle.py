"""The bundle: round trips, damage, and saves that are interrupted at every step in turn."""

import errno
import io
import itertools
import json
import os
import shutil
import stat
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clearhead import bundle
from clearhead.bundle import reading, writing
from clearhead.errors import BundleError
from clearhead.files import replacing, write_atomically

torch.set_num_threads(1)

NAMES = {"model.safetensors", "config.json", "tokenizer.json", "manifest.json", "README.md"}


def save(folder: Path, number: int, weights: dict[str, Tensor] | None = None, **changes: Any) -> bundle.Manifest:
    """Save a bundle in which every file holds the number."""
    parts: dict[str, Any] = {
        "weights": weights or {"encoder": torch.full((7, 5), float(number)), "decoder": torch.arange(3) + number},
        "config": {"task": "translate", "model": {"num_layers": number}},
        "tokenizer": json.dumps({"pieces": ["ä", str(number)]}, ensure_ascii=False),
        "weights_kind": "best",
        "data": {"pairs": number},
        "training": {"steps": number},
    }
    return bundle.save(folder, **(parts | changes))


def number_in(loaded: bundle.Bundle) -> int:
    """The number of the save that this is; fails when the files stem from different saves."""
    number = loaded.manifest.training["steps"]
    assert isinstance(number, int)
    assert torch.equal(loaded.weights["encoder"], torch.full((7, 5), float(number)))
    assert torch.equal(loaded.weights["decoder"], torch.arange(3) + number)
    assert loaded.config == {"task": "translate", "model": {"num_layers": number}}
    assert json.loads(loaded.tokenizer) == {"pieces": ["ä", str(number)]}
    return number


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Round trips


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "de"
    manifest = save(folder, 11)
    loaded = bundle.load(folder)
    assert number_in(loaded) == 11
    assert loaded.manifest == manifest == bundle.read_manifest(folder)
    assert names_in(folder) == NAMES
    assert loaded.weights["decoder"].dtype == torch.int64
    assert manifest.versions["torch"] == torch.__version__
    assert not (folder / "model.safetensors").is_symlink()


def test_saving_leaves_everything_else_in_the_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    for name in ("training/state.json", "metrics.jsonl", "notes.txt"):
        (tmp_path / name).write_text("mine")
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert names_in(tmp_path) == NAMES | {"training", "metrics.jsonl", "notes.txt"}
    assert (tmp_path / "training" / "state.json").read_text() == "mine"


def test_the_same_model_has_the_same_fingerprint_and_another_has_not(tmp_path: Path) -> None:
    first, again, other = save(tmp_path / "a", 2), save(tmp_path / "b", 2, training={}), save(tmp_path / "c", 3)
    assert first.fingerprint == again.fingerprint != other.fingerprint


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(13, 5), nn.Linear(5, 13, bias=False))
    model[1].weight = model[0].weight
    manifest = save(tmp_path, 2, weights=model.state_dict())
    assert manifest.tied == {"1.weight": "0.weight"}
    assert manifest.files["model.safetensors"].size < 2 * 13 * 5 * 4
    weights = bundle.load(tmp_path).weights
    assert weights["1.weight"] is weights["0.weight"]
    assert torch.equal(weights["1.weight"], model.state_dict()["0.weight"])


def test_a_loaded_bundle_saved_again_is_the_same(tmp_path: Path) -> None:
    shared = torch.randn(7, 5)
    first = save(tmp_path, 2, weights={"a": shared, "b": shared, "c": torch.randn(11)})
    loaded = bundle.load(tmp_path)  # its tensors are parts of one mapped file, which the save replaces
    again = save(tmp_path, 2, weights=loaded.weights)
    assert (again.fingerprint, again.tied) == (first.fingerprint, first.tied)
    assert torch.equal(loaded.weights["a"], shared)


def test_parts_transposes_and_empty_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    whole = torch.randn(7, 5)
    weights = {"whole": whole, "part": whole[2:5], "flat": whole.view(-1), "turned": whole.T}
    weights |= {"none": torch.zeros(0), "nothing": torch.zeros(0), "scalar": torch.tensor(3.0), "wide": whole[:, 1:3]}
    assert save(tmp_path, 2, weights=weights).tied == {}
    loaded = bundle.load(tmp_path).weights
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_a_score_that_is_not_a_number_does_not_cost_the_model(tmp_path: Path) -> None:
    save(tmp_path, 2, training={"scores": {"perplexity": float("inf"), "losses": [1.0, float("nan")]}})
    assert bundle.load(tmp_path).manifest.training == {"scores": {"perplexity": None, "losses": [1.0, None]}}


def test_all_files_have_the_permissions_that_the_umask_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save(tmp_path / "run", 2)
        with replacing(tmp_path / "state") as aside:
            aside.unlink()
            os.close(os.open(aside, os.O_CREAT, 0o600))  # a writer that wants it private
    finally:
        os.umask(before)
    files = [*(tmp_path / "run").iterdir(), tmp_path / "state"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}


def test_the_card_says_what_is_known_and_no_more(tmp_path: Path) -> None:
    scores = {"bleu": {"score": 97.314, "signature": "nrefs:1|tok:13a"}, "perplexity": None}
    save(tmp_path, 3, training={"steps": 1200, "scores": scores}, data={"files": ["a.tsv"]})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for part in (
        "bleu: 97.31 (`nrefs:1|tok:13a`)",
        "steps: 1,200",
        "`a.tsv`",
        "clearhead translate DIR",
        "num_layers: 3",
    ):
        assert part in card
    assert "perplexity" not in card
    assert "licence of the training data is not recorded" in card
    save(tmp_path, 3, training={}, data={"licence": "CC-BY-4.0"})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "not recorded" not in card and "`CC-BY-4.0`" in card and "None were recorded" in card
    save(tmp_path, 3, card="# Mine\n")
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


# Damage


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def put_a_folder_at(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("no folder", shutil.rmtree, r"there is no folder .*run.*clearhead train"),
    ("missing weights", lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    ("missing tokenizer", lambda f: (f / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    ("truncated", lambda f: os.truncate(f / "model.safetensors", 100), r"model\.safetensors .*\d bytes, found 100;"),
    ("flipped", lambda f: flip_a_bit(f / "model.safetensors"), r"model\.safetensors was changed.*[0-9a-f]{16}…, found"),
    ("edited", lambda f: flip_a_bit(f / "config.json"), r"config\.json was changed"),
    ("newer", lambda f: edit_manifest(f, format_version=7), r"newer clearhead \(format 7; .* up to 1\): upgrade"),
    ("no version", lambda f: edit_manifest(f, format_version="1"), r"format_version of 1 or more, found '1'"),
    ("no record", lambda f: edit_manifest(f, files={}), r"no checksum for model\.safetensors"),
    ("wrong kind", lambda f: edit_manifest(f, weights_kind="worst"), r"weights_kind: .*'best'"),
    ("loose tie", lambda f: edit_manifest(f, tied={"a": "b"}), r"a is tied to b, which is not stored"),
    ("half a manifest", lambda f: os.truncate(f / "manifest.json", 40), r"manifest\.json is damaged: not valid JSON"),
    ("a list", lambda f: (f / "manifest.json").write_text("[]"), r"not a clearhead manifest"),
    ("a foreign checkpoint", lambda f: (f / "manifest.json").unlink(), r"another toolkit"),
    (
        "a folder for a file",
        lambda f: put_a_folder_at(f / "config.json"),
        r"cannot read .*config",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    save(tmp_path / "run", 2)
    damage(tmp_path / "run")
    with pytest.raises(BundleError, match=message) as caught:
        bundle.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_folders_that_are_no_bundle_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(
        BundleError, match=r"expected model\.safetensors, config\.json, tokenizer\.json, manifest\.json"
    ):
        bundle.load(tmp_path)
    save(tmp_path / "de", 2)
    with pytest.raises(BundleError, match=f"did you mean {tmp_path / 'de'}"):
        bundle.load(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(BundleError, match="a training that has not saved a model yet"):
        bundle.load(tmp_path)
    with pytest.raises(BundleError, match="is a file"):
        bundle.load(tmp_path / "metrics.jsonl")
    assert bundle.exists(tmp_path / "de") and not bundle.exists(tmp_path) and not bundle.exists(tmp_path / "none")


def test_the_card_may_be_edited_or_removed(tmp_path: Path) -> None:
    save(tmp_path, 2)
    (tmp_path / "README.md").write_text("better")
    assert number_in(bundle.load(tmp_path)) == 2
    (tmp_path / "README.md").unlink()
    assert number_in(bundle.load(tmp_path)) == 2


# Interrupted saves


class Faults:
    """Counts the calls that change the disk, and does something else in place of those that `hits` picks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hits: Callable[[int], bool], fault: Callable[[], object]):
        self.calls = 0
        self.hits, self.fault = hits, fault
        for name in ("mkdir", "fsync", "rename", "replace", "rmdir", "chmod"):
            monkeypatch.setattr(os, name, self.watch(getattr(os, name)))
        monkeypatch.setattr(io, "open", self.watch(io.open, lambda *args, **_: "b" in args[1] and "r" not in args[1]))
        monkeypatch.setattr(writing, "save_file", self.watch(self.write_in_two_steps(save_file)))

    def watch(self, function: Callable[..., Any], applies: Callable[..., bool] = lambda *_, **__: True) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if applies(*args, **kwargs):
                self.calls += 1
                if self.hits(self.calls):
                    self.fault()
            return function(*args, **kwargs)

        return watched

    def write_in_two_steps(self, function: Callable[..., Any]) -> Any:
        def written(tensors: dict[str, Tensor], path: Path) -> None:
            function(tensors, path)
            whole = path.read_bytes()
            os.truncate(path, len(whole) // 2)
            with path.open("wb") as file:  # a watched step: a fault here leaves half a file
                file.write(whole)

        return written


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("has_old", [False, True], ids=["first save", "second save"])
def test_an_error_at_any_step_leaves_a_whole_bundle(tmp_path: Path, has_old: bool, is_lasting: bool) -> None:
    errors = []
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        if has_old:
            save(folder, 2)
        with pytest.MonkeyPatch.context() as patch:
            hits = (lambda call, step=step: call >= step) if is_lasting else (lambda call, step=step: call == step)
            faults = Faults(patch, hits, disk_full)
            message = ""
            try:
                save(folder, 3)
            except BundleError as error:
                message = str(error)
                errors.append(message)
        if faults.calls < step:
            break
        assert "No space left" in message or (not is_lasting and step == 1)  # mkdir of a folder that is there may fail
        if "cannot save" in message:
            assert ("untouched" in message) == has_old
            assert number_in(bundle.load(folder)) == 2 if has_old else not bundle.exists(folder)
        else:
            assert number_in(bundle.load(folder)) == 3
        if not is_lasting and folder.exists():
            assert not [name for name in names_in(folder) if name.startswith(".incoming-")]
        save(folder, 4)
        assert number_in(bundle.load(folder)) == 4
        assert names_in(folder) == NAMES
    assert step > 20
    assert {"cannot save" in error for error in errors} == {True, False}  # before and after the step that counts


def test_a_crash_at_any_step_leaves_the_old_bundle_or_the_new(tmp_path: Path) -> None:
    found = []
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        save(folder, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:
            Faults(pytest.MonkeyPatch(), lambda call, step=step: call == step, lambda: os._exit(9))  # type: ignore[misc]
            save(folder, 3)
            os._exit(0)
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found.append(number_in(bundle.load(folder)))
        assert bundle.read_manifest(folder).training["steps"] == found[-1]
        save(folder, 4)
        assert number_in(bundle.load(folder)) == 4
        assert names_in(folder) == NAMES  # what the dead process left is gone
        if exit_code == 0:
            break
        assert exit_code == 9
    assert found == sorted(found)  # old up to one moment, new from then on
    assert found.count(2) > 10 and found.count(3) > 5


def interrupt(folder: Path, old: int, new: int) -> None:
    """Leave the folder as a crash between two moves does."""
    save(folder / "aside", new)
    save(folder, old)
    (folder / "aside").rename(folder / ".commit")
    (folder / ".commit" / "model.safetensors").replace(folder / "model.safetensors")


def test_an_interrupted_save_is_read_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(tmp_path, old=2, new=3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def refuse() -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Faults(monkeypatch, lambda _: True, refuse)
    assert number_in(bundle.load(tmp_path)) == 3
    assert bundle.exists(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_next_save_completes_an_interrupted_one_first(tmp_path: Path) -> None:
    interrupt(tmp_path, old=2, new=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "save_file", lambda *_: disk_full())
        with pytest.raises(BundleError, match="the model saved before is untouched"):
            save(tmp_path, 4)
    assert names_in(tmp_path) == NAMES
    assert number_in(bundle.load(tmp_path)) == 3


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead, alive, unknown = (tmp_path / f".incoming-{name}" for name in (f"{2**22 + 1}-ab", f"{os.getppid()}-ab", "x"))
    for leftover in (dead, alive, unknown):
        leftover.mkdir()
        (leftover / "model.safetensors").touch()
    save(tmp_path, 2)
    assert names_in(tmp_path) == NAMES | {alive.name, unknown.name}


def test_a_file_too_large_for_the_disk_costs_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    save(tmp_path, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a real failure, inside safetensors' own writing
    try:
        with pytest.raises(BundleError, match=r"cannot save the model in .*File too large.*untouched"):
            save(tmp_path, 3, weights={"encoder": torch.zeros(101, 1009)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert number_in(bundle.load(tmp_path)) == 2
    assert names_in(tmp_path) == NAMES


def test_ctrl_c_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()


def test_everything_is_on_the_disk_before_the_step_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut keeps what was synced: all of the new bundle before the commit, the commit before the first move."""
    synced: set[int] = set()
    fsync, rename, replace = os.fsync, os.rename, os.replace
    moves = []

    def watched_fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    def watched_rename(source: Path, target: Path) -> None:
        assert target == tmp_path / ".commit"
        assert {path.stat().st_ino for path in (source, *source.iterdir())} <= synced
        assert len(list(source.iterdir())) == len(NAMES)
        synced.clear()
        rename(source, target)

    def watched_replace(source: Path, target: Path) -> None:
        assert tmp_path.stat().st_ino in synced
        moves.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(tmp_path, 2)
    assert set(moves) == NAMES and moves[-1] == "manifest.json"


# Several at once


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run all at once; what one raises is raised here."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_a_reader_always_finds_a_whole_bundle_during_saves(tmp_path: Path) -> None:
    save(tmp_path, 0)
    numbers = []
    is_done = threading.Event()

    def write() -> None:
        for number in range(1, 51):
            save(tmp_path, number)
        is_done.set()

    def read() -> None:
        while not is_done.is_set():
            numbers.append(number_in(bundle.load(tmp_path)))

    in_threads(write, read, read)
    assert len(set(numbers)) > 5  # the reader did look in between
    assert number_in(bundle.load(tmp_path)) == 50


@pytest.mark.parametrize("is_found", [True, False], ids=["replaced", "gone"])
def test_weights_replaced_while_they_are_mapped_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    save(tmp_path, 2)
    calls = []

    def load_file_late(path: Path) -> dict[str, Tensor]:
        calls.append(path)
        if len(calls) == 1:
            save(tmp_path, 3)
            if not is_found:
                raise RuntimeError("unable to open file")  # what torch says when the file was moved
        return load_file(path)

    monkeypatch.setattr(reading, "load_file", load_file_late)
    assert number_in(bundle.load(tmp_path)) == 3
    assert len(calls) == 2


def test_weights_in_another_format_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "save_file", lambda _, path: path.write_bytes(b"PK, a pickle"))
    save(tmp_path, 2)
    with pytest.raises(BundleError, match=r"model\.safetensors is not a safetensors file"):
        bundle.load(tmp_path)


def test_a_folder_that_never_rests_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 2)

    def load_moved(path: Path) -> dict[str, Tensor]:
        save(tmp_path, 3)
        return load_file(path)

    monkeypatch.setattr(reading, "load_file", load_moved)
    monkeypatch.setattr(reading, "_PAUSE", 0)
    with pytest.raises(BundleError, match="changed 50 times while it was being read"):
        bundle.load(tmp_path)


def test_two_that_save_into_one_folder_do_not_break_it(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 15):
            save(tmp_path, number)
            assert number_in(bundle.load(tmp_path)) >= 0

    in_threads(lambda: write(100), lambda: write(200))
    assert number_in(bundle.load(tmp_path)) in (114, 214)
    assert names_in(tmp_path) == NAMES


# Single files


def test_one_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "älter")
    with pytest.raises(ZeroDivisionError), replacing(path) as aside:
        aside.write_text("half")
        raise ZeroDivisionError
    monkeypatch.setattr(os, "fsync", lambda _: disk_full())
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert (path.read_bytes(), names_in(tmp_path)) == ("älter".encode(), {"state.json"})
    write_atomically(path, b"new")
    assert (path.read_bytes(), names_in(tmp_path)) == (b"new", {"state.json"})
