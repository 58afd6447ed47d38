"""Corpora that may be larger than the memory.

    id_arrays         arrays in a folder, written once and memory-mapped; token ids of all records as two flat arrays
    cached_corpus     records of large files, kept in the user's cache folder
    encoding          records to token ids, by one process per core
    corpus_cache      listing and removal of cached corpora
    held_out          split into training and validation records by a hash of their text
    sampling_weights  passes per epoch over each of several files

Imports `data.readers`, `data.records`, `data.tokenizer`, `config`, `errors` and `files`.
"""
