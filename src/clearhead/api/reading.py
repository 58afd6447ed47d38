"""The verbs of models that read: labels, tags, gaps and vectors."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.api.loaded import Loaded, StrPath, paths_of
from clearhead.errors import TaskError
from clearhead.tasks import classify, filling, tag
from clearhead.tasks.embed import embed
from clearhead.tasks.filling import Filling
from clearhead.tasks.image import classify_pictures
from clearhead.tasks.labels import Classified
from clearhead.tasks.tagged_text import TaggedText


class Reading(Loaded):
    """What a model makes of a text or a picture."""

    def classify(self, text: str) -> Classified:
        """The label of a text, with the probability of each."""
        return self.classify_many([text])[0]

    def classify_many(self, texts: Sequence[str], first_line: int = 1) -> list[Classified]:
        """The label of each text; an error names the text by its line."""
        self.need("classify")
        return classify.classify(self, texts, first_line)

    def classify_pictures(self, paths: StrPath | Sequence[StrPath]) -> list[Classified]:
        """The label of each PNG, with the probability of every label."""
        self.need("classify", pictures=True)
        return classify_pictures(self, paths_of(paths))

    def tag(self, text: str) -> TaggedText:
        """The spans of a text, such as names, and the tag of each word."""
        return self.tag_many([text])[0]

    def tag_many(self, texts: Sequence[str], first_line: int = 1) -> list[TaggedText]:
        """The spans of each text; an error names the text by its line."""
        self.need("tag")
        return tag.tag(self, texts, first_line)

    def fill(self, text: str, top: int = 5, name: str = "the text") -> list[list[Filling]]:
        """For each gap of a text, written [MASK], the pieces that fit best; an error calls the text by its name."""
        self.need("fill")
        return filling.fill(self, text, top, name)

    def embed(self, text: str, *, unit: bool = False) -> NDArray[np.float32]:
        """The vector of a text: the mean of the encoder's states; with `unit` of length 1."""
        vector_D: NDArray[np.float32] = self.embed_many([text], unit=unit)[0]
        return vector_D

    def embed_many(self, texts: Sequence[str], *, unit: bool = False, first_line: int = 1) -> NDArray[np.float32]:
        """The vector of each text, by any model with a text encoder; an error names the text by its line."""
        if self.config.model.family != "encoder":
            raise TaskError(f"{self.folder} has no encoder to embed with; its family is {self.config.model.family}")
        return embed(self, texts, first_line, unit)
