"""What is made from a bundle is made once, whole, under its checksum; elsewhere where that cannot be written."""

from pathlib import Path

import pytest
import torch

from clearhead import bundle
from clearhead.bundle import Manifest
from clearhead.bundle.writing import save as save_bundle
from clearhead.errors import BundleError
from clearhead.files import filling


def saved(folder: Path, number: float = 1.0) -> Manifest:
    return save_bundle(
        folder, weights={"w": torch.tensor([number])}, config={}, tokenizer="null", weights_kind="last", data={},
        training={},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def make(folder: Path) -> None:
    assert not list(folder.iterdir())
    (folder / "part").mkdir()
    (folder / "part" / "file").write_text("made")


def refuse(folder: Path) -> None:
    raise AssertionError("made twice")


def test_made_once_for_a_model(tmp_path: Path, home: Path) -> None:
    manifest = saved(tmp_path / "m")
    found = bundle.cached(tmp_path / "m", manifest, "kind", make)
    assert found.parent == tmp_path / "m" / "cache" and (found / "part" / "file").read_text() == "made"
    assert bundle.cached(tmp_path / "m", manifest, "kind", refuse) == found
    assert bundle.load(tmp_path / "m").manifest == manifest
    assert not home.exists()


def test_another_model_gets_its_own_and_the_old_one_goes(tmp_path: Path) -> None:
    old = bundle.cached(tmp_path / "m", saved(tmp_path / "m"), "kind", make)
    other_kind = bundle.cached(tmp_path / "m", saved(tmp_path / "m"), "other", make)
    new = bundle.cached(tmp_path / "m", saved(tmp_path / "m", 2.0), "kind", make)
    assert new != old and new.is_dir() and not old.exists()
    assert other_kind.is_dir()


def test_a_folder_that_cannot_be_written(tmp_path: Path, home: Path) -> None:
    manifest = saved(tmp_path / "m")
    (tmp_path / "m" / "cache").write_text("in the way, for root too")
    found = bundle.cached(tmp_path / "m", manifest, "kind", make)
    assert found.parent == home / "clearhead"
    assert bundle.cached(tmp_path / "m", manifest, "kind", refuse) == found
    (home / "x").write_text("")
    (home / "clearhead").rename(home / "y")
    (home / "clearhead").write_text("in the way")
    with pytest.raises(BundleError, match=r"cannot keep the converted model in .*m/cache.* nor in .*clearhead"):
        bundle.cached(tmp_path / "m", manifest, "kind", make)


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        make(folder)
        raise BundleError("broken")

    with pytest.raises(BundleError, match="broken"):
        bundle.cached(tmp_path / "m", saved(tmp_path / "m"), "kind", fail)
    assert not list((tmp_path / "m" / "cache").iterdir())


def test_whoever_comes_second_uses_what_the_first_made(tmp_path: Path) -> None:
    manifest = saved(tmp_path / "m")

    def overtaken(folder: Path) -> None:
        bundle.cached(tmp_path / "m", manifest, "kind", make)
        make(folder)

    found = bundle.cached(tmp_path / "m", manifest, "kind", overtaken)
    assert [path.name for path in found.parent.iterdir()] == [found.name]


def test_filling_replaces_only_when_told_and_only_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with filling(out) as aside:
        make(aside)
    with pytest.raises(FileExistsError), filling(out) as aside:
        (aside / "new").touch()
    with pytest.raises(KeyboardInterrupt), filling(out, overwrite=True) as aside:
        raise KeyboardInterrupt
    assert [path.name for path in out.iterdir()] == ["part"]
    with filling(out, overwrite=True) as aside:
        (aside / "new").touch()
    assert [path.name for path in out.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
