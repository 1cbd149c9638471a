"""Callers: a visitor by the page's cookie, a signed-in person by a site's token, a program by its API key, an
operator by a login. Begin with `visitors.Visitors`.
"""
