"""Text in, text out: clearhead's engines, CTranslate2 by itself, and Hugging Face `generate`, behind the same commands.

    {"command": "open", "kind": ..., "bundle": ..., "lines": ..., "setting": ..., "rank": 0}    -> nothing
    {"command": "translate", "beam": 4, "every": 1, "batch": 64, "is_single": false}           -> sentences and tokens

Cutting text into pieces and putting it together again is inside the clock, by the same tokenizer for everybody.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import clearhead
from benchmarks.protocol import Setting, Task, answer_with

Lines = list[str]
ALPHA = Task.alpha
OUTPUT_TOKENS = Task.output_tokens
"""pieces written for each sentence, no more and no fewer"""


class Translator(ABC):
    """One contestant, with the model loaded."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        self.setting = setting
        self.model = clearhead.load(folder)
        self.tokenizer = self.model.tokenizer

    @abstractmethod
    def translate(self, lines: Lines, beam: int, batch: int) -> list[tuple[str, int]]:
        """The text of each line, and of how many pieces it was made."""

    def _in_batches(self, sources: list[list[int]], batch: int) -> Iterator[list[int]]:
        """Indices, those of like length together."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        yield from (order[first : first + batch] for first in range(0, len(order), batch))


class Clearhead(Translator):
    """`model.translate_many`, as `clearhead translate` calls it."""

    def __init__(self, folder: Path, setting: Setting, engine: str = "torch", compute_type: str = "float32") -> None:
        super().__init__(folder, setting)
        self.engine = self.model.engine(engine, compute_type, token_log_probs=False)

    def translate(self, lines: Lines, beam: int, batch: int) -> list[tuple[str, int]]:
        settings = self.model.decoding(beam_size=beam, length_penalty=ALPHA, max_length=str(OUTPUT_TOKENS))
        found = self.model.translate_many(lines, settings=settings, engine=self.engine)
        return [(one.text, len(one.tokens)) for one in found]


class PlainCTranslate2(Translator):
    """Its Python package, as its documentation calls it: with its own defaults, or with all settings of clearhead's
    engine: how the cores are used, batches, scores with each text, and pieces that are never written."""

    def __init__(self, folder: Path, setting: Setting, is_default: bool) -> None:
        import ctranslate2  # type: ignore[import-untyped]

        super().__init__(folder, setting)
        self.model.engine("ctranslate2")  # converts, where nobody has yet
        [converted] = (folder / "cache").glob("ctranslate2-*")
        workers = {} if is_default else {"inter_threads": setting.threads, "intra_threads": 1}
        self.is_default = is_default
        self.translator = ctranslate2.Translator(str(converted), compute_type="float32", **workers)
        self.pieces = [self.tokenizer.piece(index) for index in range(self.tokenizer.vocab_size)]
        self.ids = {piece: index for index, piece in enumerate(self.pieces)}
        config = self.model.config.model
        never = [[self.pieces[index]] for index in sorted((config.pad_id, config.decoder_start_id))]
        self.same = {"batch_type": "tokens", "return_scores": True, "suppress_sequences": never, "max_input_length": 0}

    def translate(self, lines: Lines, beam: int, batch: int) -> list[tuple[str, int]]:
        end = self.tokenizer.eos_id
        sources = [[self.pieces[i] for i in (*ids, end)] for ids in self.tokenizer.encode_batch(lines)]
        same: dict[str, Any] = {} if self.is_default else self.same | {"max_batch_size": 2048 // beam}
        found = self.translator.translate_batch(
            sources, beam_size=beam, length_penalty=ALPHA, max_decoding_length=OUTPUT_TOKENS, **same
        )
        outputs = [[self.ids[piece] for piece in result.hypotheses[0]] for result in found]
        return [(self.tokenizer.decode(output), len(output)) for output in outputs]


class HuggingFace(Translator):
    """`MarianMTModel.generate` on a model of the same shape, post-norm, which is all that Marian has."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        import transformers
        from transformers import MarianMTModel

        from benchmarks.contestants.huggingface import marian_config

        super().__init__(folder, setting)
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        config = self.model.config.model
        shape = {name: getattr(config, name) for name in ("vocab_size", "model_dim", "num_heads")}
        self.task = Task(num_layers=config.num_encoder_layers, inner_dim=config.feed_forward_dim, **shape)
        torch.manual_seed(1)
        self.network: Any = MarianMTModel(marian_config(self.task))
        self.network.train(False)

    @torch.inference_mode()
    def translate(self, lines: Lines, beam: int, batch: int) -> list[tuple[str, int]]:
        from benchmarks.contestants.huggingface import generation_config
        from benchmarks.torch_peer import pad

        sources = [[*ids, self.tokenizer.eos_id] for ids in self.tokenizer.encode_batch(lines)]
        texts: list[tuple[str, int]] = [("", 0)] * len(lines)
        for indices in self._in_batches(sources, batch or len(sources)):
            src = pad([sources[index] for index in indices], self.task.pad_id)
            mask = (src != self.task.pad_id).long()
            output = self.network.generate(
                src, attention_mask=mask, generation_config=generation_config(self.task, beam)
            )
            for index, row in zip(indices, output[:, 1:].tolist(), strict=True):
                written = [token for token in row if token != self.task.end_id]
                texts[index] = self.tokenizer.decode(written), len(written)
        return texts


KINDS: dict[str, Any] = {
    "clearhead torch": Clearhead,
    "clearhead ctranslate2": lambda folder, setting: Clearhead(folder, setting, "ctranslate2"),
    "clearhead ctranslate2 int8": lambda folder, setting: Clearhead(folder, setting, "ctranslate2", "int8"),
    "plain ctranslate2": lambda folder, setting: PlainCTranslate2(folder, setting, is_default=False),
    "ctranslate2 defaults": lambda folder, setting: PlainCTranslate2(folder, setting, is_default=True),
    "Hugging Face Marian": HuggingFace,
    "Hugging Face, a process a core": HuggingFace,
}


class Server:
    """Answers commands, one method each."""

    translator: Translator
    lines: Lines
    share: slice

    def open(self, kind: str, bundle: str, lines: str, setting: dict[str, Any], rank: int) -> dict[str, Any]:
        """Several processes share the lines; each takes every n-th."""
        self.share = slice(rank, None, setting["processes"])
        self.lines = Path(lines).read_text(encoding="utf-8").splitlines()
        self.translator = KINDS[kind](Path(bundle), Setting(**setting))
        return {}

    def translate(self, beam: int, every: int, batch: int, is_single: bool) -> dict[str, Any]:
        lines = self.lines[::every][self.share]
        groups = [[line] for line in lines] if is_single else [lines]
        made = [one for group in groups for one in self.translator.translate(group, beam, batch)]
        return {"sentences": len(made), "tokens": sum(count for _, count in made)}


if __name__ == "__main__":
    answer_with(Server())
