"""Methods of a model that encode: labels, tags, masked words and embeddings."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from clearhead.api.base import ModelBase, StrPath, check_texts, paths_of
from clearhead.errors import DataError, TaskError
from clearhead.tasks.classification.inference import Classification, classify
from clearhead.tasks.image_classification.inference import classify_images
from clearhead.tasks.long_texts import LongTextPolicy, LongTexts
from clearhead.tasks.masked_lm.inference import MASK_PATTERN, MaskFilling, fill
from clearhead.tasks.sentence_embedding.inference import EmbeddedText, embed
from clearhead.tasks.tagging.inference import TaggedText, tag


class EncodingMethods(ModelBase):
    """Methods of encoder models.

    Each accepts one text or a list of texts, and returns one result or a list of results. `long_texts` is the policy
    for a text with more tokens than the model accepts: split (process its parts), skip (return an empty result) or stop
    (raise DecodingError). An error names a text by its line number, counted from `first_line`.
    """

    @overload
    def classify(self, text: str, *, long_texts: LongTextPolicy | LongTexts = "split") -> Classification: ...
    @overload
    def classify(
        self, text: list[str] | tuple[str, ...], *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[Classification]: ...
    def classify(
        self, text: str | Sequence[str], *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> Classification | list[Classification]:
        """Return the label of a text, or of each text of a list, and the probabilities of all labels."""
        if isinstance(text, str):
            return self.classify_many([text], long_texts=long_texts)[0]
        return self.classify_many(text, long_texts=long_texts)

    def classify_many(
        self, texts: Sequence[str], first_line: int = 1, *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[Classification]:
        """Return the label of each text; the label of an empty text is empty."""
        texts = check_texts(texts)
        self.require_task("classify")
        return classify(self, texts, first_line, LongTexts.of(long_texts))

    def classify_images(self, paths: StrPath | Sequence[StrPath]) -> list[Classification]:
        """Return the label of each PNG image, and the probabilities of all labels."""
        self.require_task("classify", images=True)
        return classify_images(self, paths_of(paths))

    @overload
    def tag(self, text: str, *, long_texts: LongTextPolicy | LongTexts = "split") -> TaggedText: ...
    @overload
    def tag(
        self, text: list[str] | tuple[str, ...], *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[TaggedText]: ...
    def tag(
        self, text: str | Sequence[str], *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> TaggedText | list[TaggedText]:
        """Return the tagged spans (such as names) of a text, or of each text of a list, and the tag of each word."""
        if isinstance(text, str):
            return self.tag_many([text], long_texts=long_texts)[0]
        return self.tag_many(text, long_texts=long_texts)

    def tag_many(
        self, texts: Sequence[str], first_line: int = 1, *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[TaggedText]:
        """Return the tagged spans and words of each text."""
        texts = check_texts(texts)
        self.require_task("tag")
        return tag(self, texts, first_line, LongTexts.of(long_texts))

    @overload
    def fill(
        self, text: str, top: int = 5, *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[list[MaskFilling]]: ...
    @overload
    def fill(
        self, text: list[str] | tuple[str, ...], top: int = 5, *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[list[list[MaskFilling]]]: ...
    def fill(
        self, text: str | Sequence[str], top: int = 5, *, long_texts: LongTextPolicy | LongTexts = "split"
    ) -> list[list[MaskFilling]] | list[list[list[MaskFilling]]]:
        """Return the `top` most probable tokens for each mask of a text, or of each text of a list.

        A mask is written [MASK] or <mask>. Raise DataError if `text` is a single text without a mask.
        """
        if not isinstance(text, str):
            return self.fill_many(text, top, long_texts=long_texts)
        [masks] = self.fill_many([text], top, long_texts=long_texts)
        if not masks and not MASK_PATTERN.search(text):
            raise DataError("the text has no mask; write [MASK] where a word is missing, as in: The [MASK] sat.")
        return masks

    def fill_many(
        self, texts: Sequence[str], top: int = 5, first_line: int = 1, *,
        long_texts: LongTextPolicy | LongTexts = "split",
    ) -> list[list[list[MaskFilling]]]:  # fmt: skip
        """Return the `top` most probable tokens for each mask of each text; an empty list for a text without a mask."""
        texts = check_texts(texts)
        self.require_task("fill")
        return fill(self, texts, top, first_line, LongTexts.of(long_texts))

    @overload
    def embed(self, text: str, *, unit: bool = False) -> NDArray[np.float32]: ...
    @overload
    def embed(self, text: list[str] | tuple[str, ...], *, unit: bool = False) -> list[NDArray[np.float32]]: ...
    def embed(
        self, text: str | Sequence[str], *, unit: bool = False
    ) -> NDArray[np.float32] | list[NDArray[np.float32]]:
        """Return the embedding of a text, or of each text of a list: the mean of the encoder states.

        With `unit` it is scaled to length 1. The embedding of an empty text is NaN.
        """
        if isinstance(text, str):
            vector_D: NDArray[np.float32] = self.embed_many([text], unit=unit)[0]
            return vector_D
        return list(self.embed_many(text, unit=unit))

    def embed_many(self, texts: Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
        """Return the embeddings of the texts, [texts, model_dim]; the row of an empty text is NaN."""
        embedded = self.embed_texts(texts, unit=unit)
        vectors_ND = np.full((len(embedded), self.config.model.model_dim), np.nan, dtype=np.float32)
        for number, text in enumerate(embedded):
            if text.embedding is not None:
                vectors_ND[number] = text.embedding
        return vectors_ND

    def embed_texts(
        self, texts: Sequence[str], *, unit: bool = False, first_line: int = 1,
        long_texts: LongTextPolicy | LongTexts = "split",
    ) -> list[EmbeddedText]:  # fmt: skip
        """Return the embedding of each text, None if it is empty, and the parts that it was split into."""
        texts = check_texts(texts)
        if self.config.model.family not in ("encoder", "transformer"):
            raise TaskError(
                f"{self.folder} cannot embed texts, because its family {self.config.model.family} has no Transformer "
                "encoder; use a model of family encoder or transformer"
            )
        self._require_input(images=False)
        return embed(self, texts, first_line, unit, LongTexts.of(long_texts))
