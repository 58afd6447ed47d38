"""Records to text files in formats that the readers accept: JSONL, and CoNLL for tagged sentences."""

import json
from collections.abc import Sequence
from dataclasses import replace

from clearhead.data.readers.documents import Document
from clearhead.data.readers.labelled import LabelledText, TaggedSentence
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import R, Record

MAX_RECORDS = 500
MAX_CHARACTERS = 500_000
"""Limit for all documents together, because one document may be a whole book."""
DEFAULT_STEM = "records"


def sample_records(records: Sequence[R], limit: int = MAX_RECORDS) -> list[R]:
    """Return at most `limit` records, evenly spaced over all; of documents, at most `MAX_CHARACTERS` together."""
    count = min(limit, len(records))
    spaced_records = [records[number * len(records) // count] for number in range(count)]
    sample: list[R] = []
    characters_left = MAX_CHARACTERS
    for record in spaced_records:
        if isinstance(record, Document):
            is_last = record is spaced_records[-1]
            if is_last and not sample and len(record.text) > MAX_CHARACTERS:  # all other documents are too long
                sample.append(replace(record, text=record.text[:MAX_CHARACTERS]))
            if len(record.text) > characters_left:
                continue
            characters_left -= len(record.text)
        sample.append(record)
    return sample


def format_files(records: Sequence[Record], tags: Sequence[str] = ()) -> dict[str, str]:
    """Return the content of each file by its name; empty if a record cannot be written as text (images).

    If `tags` are given, pairs are written to one file per tag, named after the tag.
    """
    stems: dict[str, list[str]] = {}
    suffix = "conll" if records and isinstance(records[0], TaggedSentence) else "jsonl"
    for record in records:
        stem = tags[record.file_index] if tags and isinstance(record, Pair) else DEFAULT_STEM
        text = _to_text(record)
        if text is None:
            return {}
        stems.setdefault(stem, []).append(text)
    return {f"{stem}.{suffix}": "\n".join(lines) + "\n" for stem, lines in stems.items()}


def _to_text(record: Record) -> str | None:
    """Return the line or lines of a record; None for an image."""
    if isinstance(record, TaggedSentence):
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(record.words, record.tags, strict=True))
    if isinstance(record, Pair):
        return json.dumps({"source": record.source, "target": record.target}, ensure_ascii=False)
    if isinstance(record, LabelledText):
        return json.dumps({"text": record.text, "label": record.label}, ensure_ascii=False)
    return json.dumps({"text": record.text}, ensure_ascii=False) if isinstance(record, Document) else None
