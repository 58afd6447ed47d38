"""fairseq checkpoints: the reference is M2M100 of `transformers`, fairseq's pre-norm Transformer."""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli.main import main
from tests.interop.folders import close, hf, with_random_weights

SOURCE = ["the", "do@@", "g", "s", "a", "b@@", "b", "g@@", "t@@"]
TARGET = ["hun@@", "d", "der", "a", "x"]
CODES = "#version: 0.2\nt h\nth e</w>\nd o\n"


class Trap:
    """An object that creates a folder when it is unpickled without restrictions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def reference_model(size: int, placement: str) -> Any:
    """Return M2M100, or for post-norm layers Marian with the positions of M2M100, which are those of fairseq."""
    sizes = {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 11, "decoder_attention_heads": 11}
    sizes |= {"encoder_ffn_dim": 17, "decoder_ffn_dim": 17, "d_model": 22, "vocab_size": size}
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    settings: dict[str, Any] = {**sizes, **ids, "max_position_embeddings": 24}
    model = with_random_weights(hf.M2M100ForConditionalGeneration(hf.M2M100Config(**settings)))
    if placement == "pre":
        return model
    settings |= {"decoder_vocab_size": size, "activation_function": "relu", "scale_embedding": True}
    table_LD = model.model.encoder.embed_positions.weights[2:26]  # its first position is 2, Marian's is 0
    model = with_random_weights(hf.MarianMTModel(hf.MarianConfig(**settings)))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.copy_(table_LD)
    return model


def write_checkpoint(folder: Path, shared: bool, placement: str = "pre", **changes: Any) -> Any:
    """Write a checkpoint in fairseq's layout, with dictionaries and codes in a sibling folder; return its model."""
    size = len(SOURCE) + 4
    model = reference_model(size, placement)
    tensors = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    tensors = {
        name: tensor
        for name, tensor in tensors.items()
        if not name.startswith(("shared", "lm_head", "decoder.embed", "final_logits"))
    }
    tensors = {name: tensor for name, tensor in tensors.items() if "embed_positions" not in name}
    rows = size if shared else len(TARGET) + 4
    table_VD = tensors["encoder.embed_tokens.weight"]
    tensors |= {"decoder.embed_tokens.weight": table_VD[:rows].clone(), "encoder.version": torch.tensor([3.0])}
    tensors |= {"decoder.output_projection.weight": table_VD[:rows].clone(), "decoder.version": torch.tensor([3.0])}
    settings: dict[str, Any] = {
        "arch": "transformer", "encoder_layers": 2, "decoder_layers": 3, "encoder_embed_dim": 22,
        "decoder_embed_dim": 22, "encoder_ffn_embed_dim": 17, "decoder_ffn_embed_dim": 17,
        "encoder_attention_heads": 11, "decoder_attention_heads": 11, "encoder_normalize_before": placement == "pre",
        "decoder_normalize_before": placement == "pre", "share_all_embeddings": shared,
        "share_decoder_input_output_embed": True, "max_source_positions": 24, "max_target_positions": 24,
        "source_lang": None, "target_lang": None, **changes,
    }  # fmt: skip
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "data").mkdir()
    extra = {"history": np.arange(3.0), "best": np.array([1, 2])}
    content = {"args": argparse.Namespace(**settings), "model": tensors, "extra_state": extra}
    torch.save(content, folder / "checkpoints" / "best.pt")
    for name, tokens in (("en", SOURCE), ("de", SOURCE if shared else TARGET)):
        (folder / "data" / f"dict.{name}.txt").write_text(
            "".join(f"{token} {9 - n}\n" for n, token in enumerate(tokens))
        )
    (folder / "data" / "bpe.codes").write_text(CODES)
    return model


def test_two_dictionaries_codes_and_the_same_logits(tmp_path: Path) -> None:
    reference = write_checkpoint(tmp_path, shared=False)
    assert main(["import", str(tmp_path / "checkpoints" / "best.pt"), "--out", str(tmp_path / "clearhead")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    src_NS, tgt_NT = torch.randint(4, 13, (3, 7)), torch.randint(4, 9, (3, 5))
    src_NS[0, 4:] = 1
    with torch.inference_mode():
        found = model.network.logits(model.network(src_NS, tgt_NT))
        expected = reference(input_ids=src_NS, attention_mask=(src_NS != 1).long(), decoder_input_ids=tgt_NT).logits
    close(found, expected[:, :, :9])
    decoding = model.config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.length_penalty_form, decoding.max_length) == (
        5,
        1.0,
        "length",
        "201",
    )
    assert (model.config.model.decoder_start_id, model.config.model.eos_id, model.config.model.pad_id) == (2, 2, 1)
    encoding = model.tokenizer.encode("the  dogs ab q the")
    assert encoding.tokens == ["the", "do@@", "g@@", "s", "<unk>", "b", "<unk>", "the"]
    assert encoding.offsets[1:4] == [(5, 7), (7, 8), (8, 9)]
    assert model.tokenizer.target.decode([4, 5, 6]) == "hund der"
    assert model.translate("the dog").tokens
    (tmp_path / "data.tsv").write_text("the dog\thund\nthe dogs\tder hund\n" * 10)
    arguments = [
        "train",
        str(tmp_path / "data.tsv"),
        "--from",
        str(tmp_path / "clearhead"),
        "--out",
        str(tmp_path / "tuned"),
    ]
    assert main([*arguments, "--steps", "2", "--threads", "1"]) == 0
    assert main(["evaluate", str(tmp_path / "tuned"), str(tmp_path / "data.tsv")]) == 0
    assert main(["score", str(tmp_path / "tuned"), str(tmp_path / "data.tsv")]) == 0


@pytest.mark.parametrize(
    ("generation", "expected", "named"),
    [
        ({"beam": 7, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 10}, (7, 0.6, "length", "input+11"), ""),
        ({"unnormalized": True, "max_len_b": 30}, (5, 1.0, "none", "31"), ""),
        ({"max_len_a": 1.2, "unkpen": 2}, (5, 1.0, "length", "input+201"), "not imported: max_len_a=1.2"),
    ],
)
def test_newer_checkpoints_keep_their_settings_in_sections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], generation: dict[str, Any], expected: Any, named: str
) -> None:
    write_checkpoint(tmp_path, shared=False)
    path = tmp_path / "checkpoints" / "best.pt"
    held = torch.load(path, weights_only=False)
    model = {**vars(held["args"]), "_name": "transformer"}
    del model["arch"]
    torch.save({"args": None, "cfg": {"model": model, "generation": generation}, "model": held["model"]}, path)
    assert main(["import", str(path), "--out", str(tmp_path / "clearhead")]) == 0
    assert named in capsys.readouterr().err
    decoding = clearhead.load(tmp_path / "clearhead").config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.length_penalty_form, decoding.max_length) == expected


@torch.no_grad()
def test_post_norm_layers(tmp_path: Path) -> None:
    reference = write_checkpoint(tmp_path, shared=False, placement="post")
    assert main(["import", str(tmp_path / "checkpoints" / "best.pt"), "--out", str(tmp_path / "clearhead")]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    assert (model.config.model.norm_placement, model.config.model.has_final_norm) == ("post", False)
    src_NS, tgt_NT = torch.randint(4, 13, (3, 7)), torch.randint(4, 9, (3, 5))
    src_NS[0, 4:] = 1
    expected = reference(input_ids=src_NS, attention_mask=(src_NS != 1).long(), decoder_input_ids=tgt_NT).logits
    close(model.network.logits(model.network(src_NS, tgt_NT)), expected[:, :, :9])


def test_one_dictionary_is_shared_and_files_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = write_checkpoint(tmp_path, shared=True)
    path, out = tmp_path / "checkpoints" / "best.pt", tmp_path / "clearhead"
    assert main(["import", str(path), "--out", str(out)]) == 2
    assert "--dict SOURCE --dict TARGET" in capsys.readouterr().err
    dictionaries = [word for name in ("en", "de") for word in ("--dict", str(tmp_path / "data" / f"dict.{name}.txt"))]
    assert (
        main(["import", str(path), "--out", str(out), *dictionaries, "--codes", str(tmp_path / "data" / "bpe.codes")])
        == 0
    )
    model = clearhead.load(out)
    src_NS, tgt_NT = torch.randint(4, 13, (3, 7)), torch.randint(4, 13, (3, 5))
    with torch.inference_mode():
        close(
            model.network.logits(model.network(src_NS, tgt_NT)),
            reference(input_ids=src_NS, decoder_input_ids=tgt_NT).logits,
        )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"activation_fn": "quick_gelu"}, "activation quick_gelu is not supported"),
        ({"arch": "lightconv"}, "arch lightconv is not supported"),
        ({"encoder_learned_pos": True}, "encoder_learned_pos True is not supported"),
        ({"decoder_embed_dim": 44}, "decoder_embed_dim 44 is not supported"),
        ({"max_source_positions": 10**12, "max_target_positions": 10**12}, "less than or equal to 1000000"),
        ({"encoder_layers": 10**9}, "parameters or more, but the file has"),
        ({"encoder_layers": 3}, "missing encoder.layers.2."),
        ({"encoder_layers": 1}, "unexpected encoder.layers.1."),
        (
            {"encoder_ffn_embed_dim": 16, "decoder_ffn_embed_dim": 16},
            "has shape (17, 22), but the settings imply (16, 22)",
        ),
    ],
)
def test_unsupported_settings_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], named: str
) -> None:
    write_checkpoint(tmp_path, shared=False, **changes)
    assert main(["import", str(tmp_path / "checkpoints" / "best.pt"), "--out", str(tmp_path / "clearhead")]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "clearhead").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_malicious_file_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], zipped: bool) -> None:
    path, mark = tmp_path / "evil.pt", tmp_path / "mark"
    content = {"args": argparse.Namespace(arch="transformer"), "model": {"x": torch.ones(2)}, "extra_state": Trap(mark)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    assert main(["import", str(path), "--out", str(tmp_path / "clearhead")]) == 2
    message = capsys.readouterr().err
    assert "posix.mkdir" in message
    assert "Nothing was executed" in message
    assert not mark.exists()
    torch.load(path, weights_only=False)  # an unrestricted reader executes the file, so the test file is effective
    assert mark.is_dir()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"\x80\x04."])
def test_files_that_are_not_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    assert main(["import", str(tmp_path / "x.pt"), "--out", str(tmp_path / "clearhead")]) == 2
    assert "x.pt" in capsys.readouterr().err


def test_arrays_of_objects_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {"args": argparse.Namespace(), "model": {}, "extra": np.array([Trap(tmp_path / "mark")], dtype=object)}
    torch.save(content, tmp_path / "x.pt")
    assert main(["import", str(tmp_path / "x.pt"), "--out", str(tmp_path / "clearhead")]) == 2
    assert not (tmp_path / "mark").exists()
