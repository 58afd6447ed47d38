"""Readers of text, tables and images: files to records.

    lines          decoding and decompression: UTF-8, gzip, Zstandard
    table_formats  TSV, CSV and Parquet as fields
    tables         the two columns of a table that a task reads
    pairs, labelled, documents, images    records of the tasks
    record_files   records back to files

Imports `data.records`, `config`, `errors` and `extras`; no reader knows the corpus, the tokenizer or a task.
"""
