"""From the user's files to batches of token ids.

    readers/      files -> records: pairs, labelled texts, tagged sentences, documents, images
    tokenizer/    text -> token ids and back
    corpus/       records on disk, memory-mapped token ids, held-out records, sampling weights
    records       what all record types have in common, and the report of skipped lines
    segmentation  long texts -> sentences or lines that a model can process
    batching      lengths -> batches; documents -> context windows
    shortlist     token ids of pairs -> the target tokens that a source token may become

Small corpora stay in memory. From 32 MiB of text on, `corpus.cached_corpus` writes the records to the user's cache
folder and `corpus.encoding` writes their token ids next to them. Imports `config`, `errors`, `extras` and `files`, but
neither torch nor a package of a later stage.
"""
