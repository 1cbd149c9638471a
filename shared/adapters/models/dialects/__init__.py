"""Tables of what model servers do differently: error bodies, wordings, refused fields, order of messages.

Each row names the servers that were seen to do so, and small functions read the tables. Begin with
`error_bodies`, then `refusal_wordings`; `abilities` names what the next request leaves out.
"""
