"""Studies: fifteen claims about Transformers (C1 to C15), each measured on real models and judged by a fixed rule.

`harness` defines and runs studies, `claims` contains the studies, `registry` lists them by name. May import every
other package except `cli`.
"""
