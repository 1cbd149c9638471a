"""Who somebody is, and what they may do.

People and their links, operators, passwords, one-time codes, API keys, and handing a conversation to a
person.
"""
