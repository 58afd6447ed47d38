"""What is made from a bundle and can be made again, such as the model of another engine: kept in `cache/`.

Outside the manifest, made by rename. Named by the bundle's checksum, so that another model is never taken for this one.
Where the bundle's folder cannot be written, it is kept in the user's cache folder.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from clearhead.bundle.manifest import Manifest
from clearhead.errors import BundleError
from clearhead.files import filling, user_cache

CACHE = "cache"


def cached(folder: Path, manifest: Manifest, kind: str, make: Callable[[Path], None]) -> Path:
    """The folder with what `make` makes of this bundle, made now if it is not there yet; `kind` says what and how."""
    name = f"{kind}-{manifest.fingerprint[:24]}"
    places = [folder / CACHE, user_cache()]
    for place in places:
        if (place / name).is_dir():
            return place / name
    problems = []
    for place in places:
        try:
            with filling(place / name) as aside:
                make(aside)
        except OSError as error:
            if (place / name).is_dir():  # another process was first
                return place / name
            problems.append(f"{place}: {error.strerror or error}")
            continue
        if place == places[0]:
            _drop_others(place, kind, name)
        return place / name
    raise BundleError(f"cannot keep the converted model in {' nor in '.join(problems)}; make one of them writable")


def _drop_others(place: Path, kind: str, name: str) -> None:
    """Leaves only what belongs to the weights that the bundle has now."""
    for other in place.glob(f"{kind}-*"):
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
