"""A conversation as plain values.

`session` has the log and the view, `turns` what a turn costs and how it ends, `policy` how a context is kept,
by four strategies (`timing_strategy`, `keep_strategy`, `summary_strategy`, `prune_strategy`). `budget` says
how full a context is, `pruning` what is shortened, `summary` what replaces hidden messages. Begin with
`session`.
"""
