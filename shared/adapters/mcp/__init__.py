"""Tools of servers that speak the Model Context Protocol.

`connection` keeps one server's session, `results` makes plain values of its answers, `tools` offers them
to the toolbox. Begin with `tools`.
"""
