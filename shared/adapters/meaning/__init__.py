"""Vectors that represent the meaning of texts, made by a model in a separate process on this machine.

`process` holds the model and answers on a unix socket; `client` asks it. Begin with `process`.
"""
