"""Facts about a served model. Does not import torch."""

from dataclasses import asdict
from typing import Any

from clearhead.api import Model
from clearhead.inspection.trace.head_ref import list_head_refs
from clearhead.tasks.registry import get_task

EXAMPLES = {
    "lm": "The animal",
    "mlm": "The old [MASK] eats the grass.",
    "denoise": "The old <x0> eats the <x1> in the house.",
}
EXAMPLE = "The animal did not cross the street because it was too tired."


def model_card(name: str, model: Model) -> dict[str, Any]:
    """What the page needs to know of a model before anything is traced."""
    config = model.config
    return {
        "name": name,
        "task": config.task,
        "verb": get_task(config.task).verb,
        "description": config.model.describe(),
        "writes": config.model.head == "generation",
        "reads_images": config.model.reads_images,
        "parameters": model.weights.num_parameters,
        "example": "" if config.model.reads_images else EXAMPLES.get(config.task, EXAMPLE),
        "labels": list(config.labels),
        "config": {**config.model.model_dump(mode="json"), "d_k": config.model.head_key_dim,
                   "d_v": config.model.head_value_dim},
        "decoding": config.decoding.model_dump(mode="json"),
        "parts": [asdict(one) for one in list_head_refs(config.model)],
    }  # fmt: skip
