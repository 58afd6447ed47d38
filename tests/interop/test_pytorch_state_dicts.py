"""State dicts of nn.Transformer inside the module of torch's tutorial, and of the Annotated Transformer."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import clearhead
from clearhead.cli.main import main
from clearhead.model.positions import sinusoids
from tests.interop.annotated import EncoderDecoder
from tests.interop.folders import close, with_random_weights

SPECIALS = ["<unk>", "<pad>", "<bos>", "<eos>"]
SOURCE, TARGET = [*SPECIALS, *"abcdefg"], [*SPECIALS, *"uvwxyzrstq"]
PAD = 1
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a warning of torch's fast path


class TokenEmbedding(nn.Module):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.embedding, self.width = nn.Embedding(size, width), width

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) * math.sqrt(self.width)  # type: ignore[no-any-return]


class PositionalEncoding(nn.Module):
    pos_embedding: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("pos_embedding", sinusoids(30, width)[:, None])


class Seq2SeqTransformer(nn.Module):
    """Module of torch's tutorial on translation."""

    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.transformer = nn.Transformer(22, 11, 2, 3, 17, dropout=0.0, batch_first=True, norm_first=norm_first)
        self.generator = nn.Linear(22, len(TARGET))
        self.src_tok_emb, self.tgt_tok_emb = TokenEmbedding(len(SOURCE), 22), TokenEmbedding(len(TARGET), 22)
        self.positional_encoding = PositionalEncoding(22)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        places = self.positional_encoding.pos_embedding[:, 0]
        padding = src == PAD
        hidden = self.transformer(
            self.src_tok_emb(src) + places[: src.shape[1]], self.tgt_tok_emb(tgt) + places[: tgt.shape[1]],
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]), src_key_padding_mask=padding,
            memory_key_padding_mask=padding, tgt_is_causal=True,
        )  # fmt: skip
        return self.generator(hidden)  # type: ignore[no-any-return]


def vocabulary_options(folder: Path) -> list[str]:
    """Write the vocabularies, which a state dict lacks; return the options that name them."""
    for name, words in (("source", SOURCE), ("target", TARGET)):
        (folder / f"{name}.txt").write_text("\n".join(words) + "\n")
    return ["--dict", str(folder / "source.txt"), "--dict", str(folder / "target.txt"), "--set", "model.num_heads=11"]


def batch() -> tuple[Tensor, Tensor]:
    src_NS, tgt_NT = torch.randint(4, len(SOURCE), (3, 7)), torch.randint(4, len(TARGET), (3, 5))
    src_NS[0, 4:] = PAD
    return src_NS, tgt_NT


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_nn_transformer(tmp_path: Path, placement: str) -> None:
    reference = with_random_weights(
        Seq2SeqTransformer(placement == "pre")
    ).train()  # its fast path for inference wants no dropout
    torch.save({"model_state_dict": reference.state_dict(), "epoch": 3}, tmp_path / "model.pt")
    arguments = [
        "import",
        str(tmp_path / "model.pt"),
        "--out",
        str(tmp_path / "clearhead"),
        *vocabulary_options(tmp_path),
    ]
    assert main([*arguments, "--set", f"model.norm_placement={placement}"]) == 0
    model = clearhead.load(tmp_path / "clearhead")
    src_NS, tgt_NT = batch()
    with torch.no_grad():
        close(model.network.logits(model.network(src_NS, tgt_NT)), reference(src_NS, tgt_NT))
    assert model.tokenizer.encode("a zz b").tokens == ["<bos>", "a", "<unk>", "b"]
    assert model.tokenizer.encode("").ids == []
    assert model.translate("a b c").finish_reason in ("end", "length")


def test_annotated_transformer(tmp_path: Path) -> None:
    reference = with_random_weights(EncoderDecoder(len(SOURCE), len(TARGET), 11, 22, 17, 2))
    save_file(
        {name: tensor.contiguous() for name, tensor in reference.state_dict().items()}, tmp_path / "m.safetensors"
    )
    arguments = [
        "import",
        str(tmp_path / "m.safetensors"),
        "--out",
        str(tmp_path / "clearhead"),
        *vocabulary_options(tmp_path),
    ]
    assert main(arguments) == 0
    model = clearhead.load(tmp_path / "clearhead")
    src_NS, tgt_NT = batch()
    with torch.inference_mode():
        close(model.network.logits(model.network(src_NS, tgt_NT)), reference(src_NS, tgt_NT, PAD))


@pytest.mark.parametrize(
    ("left_out", "named"),
    [("--set", "--set model.num_heads"), ("--dict", "--dict SOURCE --dict TARGET")],
)
def test_settings_that_a_state_dict_lacks_are_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: str, named: str
) -> None:
    torch.save(Seq2SeqTransformer().state_dict(), tmp_path / "model.pt")
    words = vocabulary_options(tmp_path)
    remaining = [
        word for option in range(0, len(words), 2) for word in words[option : option + 2] if words[option] != left_out
    ]
    assert main(["import", str(tmp_path / "model.pt"), "--out", str(tmp_path / "clearhead"), *remaining]) == 2
    assert named in capsys.readouterr().err


def test_other_positions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = Seq2SeqTransformer()
    reference.positional_encoding.pos_embedding.mul_(2)
    torch.save(reference.state_dict(), tmp_path / "model.pt")
    assert (
        main(
            ["import", str(tmp_path / "model.pt"), "--out", str(tmp_path / "clearhead"), *vocabulary_options(tmp_path)]
        )
        == 2
    )
    assert "pos_embedding are not supported; expected the sinusoids" in capsys.readouterr().err
