"""The figures of a run as TensorBoard's event files, by tensorboardX: it needs protobuf and numpy alone, where torch's
own writer needs all of TensorBoard. Imported only when they are asked for."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.extras import require_package

EVENTS = "tensorboard"


def require_tensorboard() -> None:
    """Raise an error before the work starts if event files cannot be written."""
    require_package("tensorboardX", "--tensorboard")


class EventFiles:
    """Event files in the folder `tensorboard/` of a run, the same figures as in its metrics."""

    def __init__(self, folder: Path, step: int) -> None:
        """`step`: where the run stands; TensorBoard hides what was noted behind it before."""
        from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

        # Names carry the time in seconds, and a file of the same name is written over: so their number too.
        number = len([*(folder / EVENTS).glob("*")])
        self._writer = SummaryWriter(
            str(folder / EVENTS), purge_step=step + 1 if step else None, filename_suffix=f".{number}"
        )

    def record(self, entry: Mapping[str, Any]) -> None:
        """One line of the metrics."""
        for name, value in figures(entry).items():
            self._writer.add_scalar(name, value, entry["step"])

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()


def figures(entry: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in a line of the metrics, by the names that TensorBoard groups them by."""
    found = {f"train/{name}": entry[name] for name in ("loss", "rate", "tokens_per_second") if name in entry}
    for name, value in entry.get("valid", {}).items():
        inner = value.get("score") if isinstance(value, Mapping) and "signature" in value else value
        found |= {f"valid/{name}": inner} if not isinstance(inner, Mapping) else {}
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
