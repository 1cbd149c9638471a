"""Identities and rights: people and their links, operators, passwords, one-time codes, API keys, and handing
a conversation to an operator.
"""
