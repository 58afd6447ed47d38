"""The harness of studies: protocol and decision rules, runner, process pool, result files, charts, shared models, data.

Must not import `study.claims`.
"""
