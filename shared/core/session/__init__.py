"""A conversation as plain values.

`session` has the log and the view, `turns` what a turn costs and how it ends, `policy` and `presets` the
numbers of a context, `budget` how full it is, `pruning` what is shortened, `summary` what stands in for what
is hidden. Begin with `session`.
"""
