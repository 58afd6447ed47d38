"""The claims of the notes (C1 to C15), each measured on real models, with a rule that could also have said no.

`protocol` is what a study is, `verdict` the rule, `results` the file, `runner` the work; then one file a claim, and
`catalogue`, which knows them all.
"""
