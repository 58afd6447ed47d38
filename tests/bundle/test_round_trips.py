"""Saving and loading: weights, tied tensors, summary values, permissions and the model card."""

import os
import stat
from pathlib import Path

import torch
from torch import nn

from clearhead import bundle
from clearhead.files import replace_file
from tests.bundle.example_bundles import NAMES, names_in, number_in, save


def test_a_saved_bundle_is_loaded_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "de"
    manifest = save(folder, 11)
    loaded = bundle.load(folder)
    assert number_in(loaded) == 11
    assert loaded.manifest == manifest == bundle.read_manifest(folder)
    assert names_in(folder) == NAMES
    assert loaded.tensors()["decoder"].dtype == torch.int64
    assert manifest.versions["torch"] == torch.__version__
    assert not (folder / "model.safetensors").is_symlink()


def test_saving_keeps_other_files_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    for name in ("training/state.json", "metrics.jsonl", "notes.txt"):
        (tmp_path / name).write_text("mine")
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert names_in(tmp_path) == NAMES | {"training", "metrics.jsonl", "notes.txt"}
    assert (tmp_path / "training" / "state.json").read_text() == "mine"


def test_fingerprints_are_equal_for_equal_models_only(tmp_path: Path) -> None:
    first, saved_again, other = save(tmp_path / "a", 2), save(tmp_path / "b", 2, training={}), save(tmp_path / "c", 3)
    assert first.fingerprint == saved_again.fingerprint != other.fingerprint


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(13, 5), nn.Linear(5, 13, bias=False))
    model[1].weight = model[0].weight
    manifest = save(tmp_path, 2, weights=model.state_dict())
    assert manifest.tied == {"1.weight": "0.weight"}
    assert manifest.files["model.safetensors"].size < 2 * 13 * 5 * 4
    weights = bundle.load(tmp_path).tensors()
    assert weights["1.weight"] is weights["0.weight"]
    assert torch.equal(weights["1.weight"], model.state_dict()["0.weight"])


def test_a_loaded_bundle_saved_again_is_the_same(tmp_path: Path) -> None:
    shared = torch.randn(7, 5)
    first = save(tmp_path, 2, weights={"a": shared, "b": shared, "c": torch.randn(11)})
    loaded = bundle.load(tmp_path)
    saved_again = save(tmp_path, 2, weights=loaded.tensors())
    assert (saved_again.fingerprint, saved_again.tied) == (first.fingerprint, first.tied)
    assert torch.equal(loaded.tensors()["a"], shared)


def test_slices_transposes_and_empty_tensors_are_saved(tmp_path: Path) -> None:
    tensor = torch.randn(7, 5)
    weights = {"whole": tensor, "part": tensor[2:5], "flat": tensor.view(-1), "turned": tensor.T}
    weights |= {"none": torch.zeros(0), "nothing": torch.zeros(0), "scalar": torch.tensor(3.0), "wide": tensor[:, 1:3]}
    assert save(tmp_path, 2, weights=weights).tied == {}
    loaded = bundle.load(tmp_path).tensors()
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_a_nan_score_does_not_prevent_saving(tmp_path: Path) -> None:
    save(tmp_path, 2, training={"scores": {"perplexity": float("inf"), "losses": [1.0, float("nan")]}})
    assert bundle.load(tmp_path).manifest.training == {"scores": {"perplexity": None, "losses": [1.0, None]}}


def test_all_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save(tmp_path / "run", 2)
        with replace_file(tmp_path / "state") as temporary:
            temporary.unlink()
            os.close(os.open(temporary, os.O_CREAT, 0o600))  # a writer that makes the file private
    finally:
        os.umask(before)
    files = [*(tmp_path / "run").iterdir(), tmp_path / "state"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}


def test_the_model_card_contains_only_recorded_facts(tmp_path: Path) -> None:
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
