"""Train, run, serve and inspect Transformer models on your own text and machine.

    import clearhead

    clearhead.train("pairs.tsv", out="runs/de", minutes=10)
    model = clearhead.load("runs/de")
    print(model.translate("A small dog runs.").text)

The public names are imported on first use, so that `import clearhead` is fast and does not import torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.api import Model, Translation, evaluate, load, train
    from clearhead.errors import ClearheadError

__all__ = ["ClearheadError", "Model", "Translation", "evaluate", "load", "train"]


def __getattr__(name: str) -> object:
    if name == "ClearheadError":
        from clearhead.errors import ClearheadError

        return ClearheadError
    if name in __all__:
        from clearhead import api

        return getattr(api, name)
    raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
