"""Small models for the check of an installed wheel: python -m tests.runtime.smoke_models FOLDER."""

import sys
from pathlib import Path

from tests.runtime.smoke import COMMANDS
from tests.tasks.all_tasks import Models


def main(folder: Path) -> None:
    """Train a model of each task for one update."""
    folder.mkdir(parents=True)
    models = Models(folder)
    for task in COMMANDS:
        models[task]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
