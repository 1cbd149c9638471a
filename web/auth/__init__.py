"""Identifies the callers of the chat: visitors by the page's cookie or a widget's token, signed-in people by
a token of the site.

Begin with `visitors.Visitors`.
"""
