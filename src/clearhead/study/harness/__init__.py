"""Common parts of all studies: protocol, decision rules, runner, process pool, result files, charts, models and data.

Must not import `study.claims`.
"""
