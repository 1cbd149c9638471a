"""Verdicts: what is learned from answers of providers, each as evidence with session, kind and age.

One session never decides for the others: its evidence applies to itself, and to every session once three
different ones have met the same. Begin with `evidence`, which has this rule. `abilities` are parts of a
request that a model's server refuses, `windows` are sizes that refusals name, `rejections` are errors for
operators, `counts` are token counts that were too low, and `model_verdicts` has these four for one model.
`breaker` pauses a provider, `unable_models` are models that answer in the wrong form, and `summaries` says
which model writes no summaries for a while.

Everything but `summaries` is kept in the memory of a process; `summaries` reads rows of Postgres.
"""
