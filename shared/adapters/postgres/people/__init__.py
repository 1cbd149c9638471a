"""Identities in Postgres. Visitors, linked accounts, agents and sites; operators with their logins, second
factors and the audit log; API keys. Begin with `account_links` for people, with `operator_auth` for
operators.
"""
