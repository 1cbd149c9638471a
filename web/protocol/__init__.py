"""The words that browsers and the server exchange: frames of protocol v1 in `wire`. Everything from
outside is parsed here into values, strictly.
"""
