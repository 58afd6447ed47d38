"""Pictures as data: lines over an axis, with what the seeds span. How they look is `drawing`'s business."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One line: at each x one value a seed; the line goes through their means, the band from lowest to highest."""

    label: str
    points: Sequence[tuple[float, Sequence[float]]]


@dataclass(frozen=True)
class Chart:
    """One picture. With `ticks` the x axis has names; `is_joined` where their order means something."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] = ()
    is_joined: bool = True
