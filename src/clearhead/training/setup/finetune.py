"""Fine-tuning: a training that starts from a pretrained model.

The shape, the tokenizer and all matching weights are those of the pretrained model; a head for another task is newly
initialized.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from clearhead import bundle
from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError
from clearhead.model.parameters import Weights, load_matching, named_weights
from clearhead.tasks.task import Task
from clearhead.training.loop.callbacks import Callback

HEAD = "output."  # prefix of the output layer for labels and tags, whose size depends on the data


def tokenizer_to_text(tokenizer: Tokenizer | None) -> str:
    """Return the tokenizer as text, to save it and to send it to other processes."""
    return tokenizer.to_json() if tokenizer else bundle.NO_TOKENIZER


def tokenizer_from_text(text: str) -> Tokenizer | None:
    """Return the tokenizer that `tokenizer_to_text` wrote."""
    return None if text.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(text)


@dataclass(frozen=True)
class PretrainedModel:
    """Pretrained model from which a training starts."""

    folder: Path
    config: Config
    tokenizer: Tokenizer | None
    weights: Weights
    fingerprint: str

    @classmethod
    def load(cls, folder: Path) -> "PretrainedModel":
        """Return the model in a bundle."""
        loaded = bundle.load(folder)
        tokenizer, fingerprint = tokenizer_from_text(loaded.tokenizer), loaded.manifest.fingerprint
        return cls(folder, configs.parse(loaded.config), tokenizer, loaded.tensors(), fingerprint)

    def base(self, task: Task) -> dict[str, Any]:
        """Return the base settings: task defaults, overridden by the pretrained model's shape and tokenizer."""
        model = self.config.model.model_dump()
        task_specific = {"head", "num_labels"} | ({"pooling"} if self.config.model.head == "generation" else set())
        inherited = {
            "model": {name: value for name, value in model.items() if name not in task_specific},
            "tokenizer": self.config.tokenizer.model_dump(),
        }
        merged = configs.merge(task.base, inherited)
        misfit = f"{self.folder} was trained for the task {self.config.task} and cannot start --task {task.name}"
        default = configs.build(base=task.base).model
        if default.reads_images != self.config.model.reads_images:
            raise ConfigError(f"{misfit}: one reads text, the other images; leave out --from")
        families = {self.config.model.family, default.family}
        if "decoder" in families and len(families) > 1:
            raise ConfigError(f"{misfit}: only one of them continues a prompt; leave out --from")
        try:
            configs.build(base=merged)
        except ConfigError as error:
            raise ConfigError(f"{misfit}: {error}") from None
        return merged

    def check(self, draft: Config) -> None:
        """Raise ConfigError if model family or tokenizer differ, since the weights could not be used."""
        family, pretrained_family = draft.model.family, self.config.model.family
        if family != pretrained_family:
            raise ConfigError(
                f"model.family={family} does not fit {self.folder}, whose family is {pretrained_family}; "
                f"leave it out, or leave out --from"
            )
        tokenizer = draft.tokenizer.model_dump()
        for name, value in self.config.tokenizer.model_dump().items():
            if tokenizer[name] != value:
                raise ConfigError(
                    f"tokenizer.{name}={tokenizer[name]} does not fit {self.folder}, which was trained with {value}; "
                    f"leave out the tokenizer settings, or leave out --from"
                )

    def load_into(self, model: nn.Module, config: Config, callback: Callback) -> None:
        """Load the pretrained weights into a new model and report which tensors are newly initialized."""
        new = named_weights(model)
        self._check_shapes(new, config)
        trained = self.weights
        if self._has_other_labels(config):
            trained = {name: tensor for name, tensor in trained.items() if not name.startswith(HEAD)}
        missing = load_matching(model, trained)
        if len(missing) == len(new):
            raise ConfigError(
                f"{self.folder} has no weight in common with this model; see clearhead info {self.folder}"
            )
        used = {self.weights[name].data_ptr() for name in new.keys() & self.weights.keys()}  # tied weights share data
        unused = sorted(name for name, tensor in self.weights.items() if tensor.data_ptr() not in used)
        ignored = f"; not loaded: {', '.join(unused)}" if unused else ""
        callback.message(
            f"loaded {len(new) - len(missing)} tensors from {self.folder}; "
            f"newly initialized: {', '.join(missing) or 'none'}{ignored}"
        )

    def _check_shapes(self, new: Weights, config: Config) -> None:
        """Raise ConfigError if a tensor outside the head has another shape than in the pretrained model."""
        for name in new.keys() & self.weights.keys():
            shape, trained_shape = tuple(new[name].shape), tuple(self.weights[name].shape)
            if shape != trained_shape and not name.startswith(HEAD):
                raise ConfigError(
                    f"the shape does not fit {self.folder}: {name} is {trained_shape} there and {shape} here"
                    f"{self._image_sizes(config)}; leave out the preset and the model settings, or leave out --from"
                )

    def _has_other_labels(self, config: Config) -> bool:
        """Return whether the output layer is for other labels, even if it has the same size."""
        if config.model.head != self.config.model.head:
            return True
        return bool(config.labels) and (config.labels, config.task) != (self.config.labels, self.config.task)

    def _image_sizes(self, config: Config) -> str:
        """Return a note with both image sizes if they differ, else an empty string."""
        trained, new = (f"{model.image_size}x{model.image_size}" for model in (self.config.model, config.model))
        return f" (images of {trained} there, of {new} here)" if trained != new else ""
