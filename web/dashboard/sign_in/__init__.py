"""How an operator logs in: by password or one-time link, with a second factor, or through the company's
identity provider.
"""
