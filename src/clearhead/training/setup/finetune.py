"""Training that starts from a trained model (fine-tuning): what is taken over, and what does not fit.

The shape and the tokenizer come from the model, and every weight that has a place in the new network; a head for
another task stays fresh.
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

HEAD = "output."  # of labels and tags: its size follows from the data


@dataclass(frozen=True)
class PretrainedModel:
    """A trained model as the beginning of another."""

    folder: Path
    config: Config
    tokenizer: Tokenizer | None
    weights: Weights

    @classmethod
    def load(cls, folder: Path) -> "PretrainedModel":
        """The model of a bundle."""
        found = bundle.load(folder)
        has_tokenizer = found.tokenizer.strip() != bundle.NO_TOKENIZER
        tokenizer = Tokenizer.from_json(found.tokenizer) if has_tokenizer else None
        return cls(folder, configs.parse(found.config), tokenizer, found.tensors())

    def base(self, chosen: Task) -> dict[str, Any]:
        """The settings that lie under all others: the task's, and on them the model's shape and tokenizer."""
        model = self.config.model.model_dump()
        own = {"head", "num_labels"} | ({"pooling"} if self.config.model.head == "generation" else set())
        inherited = {
            "model": {name: value for name, value in model.items() if name not in own},
            "tokenizer": self.config.tokenizer.model_dump(),
        }
        merged = configs.merge(chosen.base, inherited)
        misfit = f"{self.folder} was trained for the task {self.config.task} and cannot start --task {chosen.name}"
        if configs.build(base=chosen.base).model.reads_images != self.config.model.reads_images:
            raise ConfigError(f"{misfit}: one reads text, the other pictures; leave out --from")
        if "decoder" in (families := {self.config.model.family, _family(chosen)}) and len(families) > 1:
            raise ConfigError(f"{misfit}: only one of them goes on from a prompt; leave out --from")
        try:
            configs.build(base=merged)
        except ConfigError as error:
            raise ConfigError(f"{misfit}: {error}") from None
        return merged

    def check(self, draft: Config) -> None:
        """Refuses another family, whose weights are others, and another tokenizer: the weights know no other pieces."""
        here, there = draft.model.family, self.config.model.family
        if here != there:
            raise ConfigError(
                f"model.family={here} does not fit {self.folder}, whose family is {there}; "
                f"leave it out, or leave out --from"
            )
        before, now = self.config.tokenizer.model_dump(), draft.tokenizer.model_dump()
        for name, value in before.items():
            if now[name] != value:
                raise ConfigError(
                    f"tokenizer.{name}={now[name]} does not fit {self.folder}, which was trained with {value}; "
                    f"leave the tokenizer as it is, or leave out --from"
                )

    def hand_over(self, model: nn.Module, config: Config, watcher: Callback) -> None:
        """Puts the trained weights into the new network and says which of its own stay fresh."""
        own = named_weights(model)
        for name in own.keys() & self.weights.keys():
            here, there = tuple(own[name].shape), tuple(self.weights[name].shape)
            if here != there and not name.startswith(HEAD):
                raise ConfigError(
                    f"the shape does not fit {self.folder}: {name} is {there} there and {here} here"
                    f"{self._why(config)}; leave the preset and the model settings as they are, or leave out --from"
                )
        known = self.weights
        if self._has_other_head(config):
            known = {name: tensor for name, tensor in known.items() if not name.startswith(HEAD)}
        fresh = load_matching(model, known)
        if len(fresh) == len(own):
            raise ConfigError(
                f"{self.folder} has no weight in common with this model; see clearhead info {self.folder}"
            )
        used = {self.weights[name].data_ptr() for name in own.keys() & self.weights.keys()}  # tied ones have more names
        unused = sorted(name for name, tensor in self.weights.items() if tensor.data_ptr() not in used)
        trained = len(own) - len(fresh)
        left = f"; left behind: {', '.join(unused)}" if unused else ""
        watcher.message(
            f"starting from {trained} trained tensors of {self.folder}; fresh: {', '.join(fresh) or 'none'}{left}"
        )

    def _has_other_head(self, config: Config) -> bool:
        """Whether the output layer means something else, even if it has the same size."""
        if config.model.head != self.config.model.head:
            return True
        return bool(config.labels) and (config.labels, config.task) != (self.config.labels, self.config.task)

    def _why(self, config: Config) -> str:
        """What the data has to do with a shape that does not fit."""
        sizes = [f"{each.image_size}x{each.image_size}" for each in (self.config.model, config.model)]
        return f" (pictures of {sizes[0]} there, of {sizes[1]} here)" if sizes[0] != sizes[1] else ""


def _family(chosen: Task) -> str:
    """The family that a task has if nobody asks for another."""
    return configs.build(base=chosen.base).model.family
