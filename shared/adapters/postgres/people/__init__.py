"""Stores of people, operators and programs.

People: visitors, linked accounts, agents and sites. Operators: logins, second factors and the audit log.
Programs: API keys. Begin with `account_links` for people, with `operator_auth` for operators.
"""
