"""Studies: experiments on fifteen claims about Transformers (C1 to C15), each with a decision rule fixed in advance.

`harness` defines and runs studies, `claims` contains the studies, `registry` lists them by name. May import every
other package except `cli`.
"""
