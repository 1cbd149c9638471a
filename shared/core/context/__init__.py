"""What the next request holds.

`build_context` puts system text, notes, summary, live entries and tools in an order that a provider's
cache keeps; `prompts` has every sentence that a model reads; `untrusted_text` quotes what others wrote.
Begin with `build_context`.
"""
