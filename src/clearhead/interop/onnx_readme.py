"""README.md of an ONNX folder that holds an encoder: a description and a Python example, by head."""

from clearhead.config import Config

_HEAD = """# {title}

`model.onnx` maps `{input}` to `{output}`; batch size{dynamic} free. {limits}`config.json` holds
the settings and the labels of the model{tokenizer}.

```python
import json
from pathlib import Path

import numpy as np
import onnxruntime
"""
_TEXT = """from tokenizers import Tokenizer

folder = Path(".")
config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_padding(pad_id=config["pad_id"])
session = onnxruntime.InferenceSession(folder / "model.onnx")

texts = {texts}
encodings = tokenizer.encode_batch(texts)
ids = np.array([encoding.ids for encoding in encodings])
(outputs,) = session.run(None, {{"ids": ids}})
"""
_IMAGE = """from PIL import Image

folder = Path(".")
config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
session = onnxruntime.InferenceSession(folder / "model.onnx")

image = Image.open(folder / "image.png").convert("{mode}").resize((config["image_size"], config["image_size"]))
pixels = np.asarray(image, dtype=np.float32).reshape(config["image_size"], config["image_size"], -1)
(outputs,) = session.run(None, {{"pixels": pixels.transpose(2, 0, 1)[None] / 127.5 - 1}})
print(config["labels"][outputs[0].argmax()])
"""
_OUTPUTS = {
    "classification": """for text, logits in zip(texts, outputs):
    print(config["labels"][logits.argmax()], text, sep="\\t")
""",
    "token_classification": """for encoding, logits in zip(encodings, outputs):  # a word has the tag of its first token
    for token, tag in zip(encoding.tokens, logits.argmax(-1)):
        print(token, config["labels"][tag], sep="\\t")
""",
    "masked_lm": """for row, logits in zip(ids, outputs):
    for position in np.flatnonzero(row == tokenizer.token_to_id("{mask}")):
        print(tokenizer.id_to_token(logits[position].argmax()))
""",
    "embedding": """print(outputs / np.linalg.norm(outputs, axis=1, keepdims=True))
""",
}
_TITLES = {
    "classification": "Classifier",
    "token_classification": "Tagger: one label per token",
    "masked_lm": "Masked language model",
    "embedding": "Sentence embeddings",
}


def readme(config: Config, mask_token: str) -> str:
    """Return the text; the example runs in the folder, with the images or texts of the user."""
    model = config.model
    head = _HEAD.format(
        title=_TITLES[model.head],
        input="ids" if model.has_text else "pixels",
        output="sentence_embedding" if model.head == "embedding" else "logits",
        dynamic=" and length are" if model.has_text else " is",
        limits=f"A text has at most {_max_tokens(config):,} tokens. " if model.has_text else "",
        tokenizer=", `tokenizer.json` its tokenizer" if model.has_text else "",
    )
    if not model.has_text:
        return head + _IMAGE.format(mode="L" if model.image_channels == 1 else "RGB") + "```\n"
    texts = ["The first text.", "A second text, which is longer."]
    if model.head == "masked_lm":
        texts = [f"The {mask_token} text.", f"A second text {mask_token} is longer."]
    return head + _TEXT.format(texts=texts) + _OUTPUTS[model.head].replace("{mask}", mask_token) + "```\n"


def _max_tokens(config: Config) -> int:
    """Return the length limit; learned positions beyond the longest training text are untrained."""
    limit = config.model.max_positions
    return min(limit, config.data.max_tokens) if config.model.positions == "learned" else limit
