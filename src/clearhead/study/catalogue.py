"""Every study by name, at each of its sizes: miniature (seconds, for tests), default, and full (`--full`)."""

import difflib
from collections.abc import Mapping
from typing import Literal

from clearhead.errors import StudyError
from clearhead.study.mask import Mask
from clearhead.study.order import Order
from clearhead.study.protocol import Study

Size = Literal["miniature", "default", "full"]

STUDIES: Mapping[str, Mapping[Size, Study]] = {
    "order": {
        "miniature": Order(seeds=2, length=7, permutations=3, width=16),
        "default": Order(),
        "full": Order(seeds=20, length=61, permutations=50, layers=6, width=128, minutes=10),
    },
    "mask": {
        "miniature": Mask(seeds=1, lengths=(5, 17), width=12, layers=1),
        "default": Mask(),
        "full": Mask(seeds=5, lengths=(8, 16, 32, 64, 128, 256, 512), layers=4, width=128, minutes=40),
    },
}


def find(name: str, size: Size = "default") -> Study:
    """The study of that name."""
    if name not in STUDIES:
        close = difflib.get_close_matches(name, [*STUDIES], n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(STUDIES)}"
        raise StudyError(f"unknown study {name!r}; {hint}")
    return STUDIES[name][size]
