"""Tables of what model servers do differently: error bodies, wordings, refused fields, order of messages.

Each row names the servers that it was seen at, and small functions read the tables. Begin with `error_bodies`, then
`refusal_wordings`; `abilities` names what the next request leaves out.
"""
