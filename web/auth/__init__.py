"""Callers of the chat: a visitor by the page's cookie or a widget's token, a signed-in person by a
site's token.

Begin with `visitors.Visitors`.
"""
