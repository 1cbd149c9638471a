"""Contents of the next request. `build_context` puts system text, notes, summary, live entries and tools in
an order that a provider's cache keeps; `prompts` has every sentence that a model reads; `untrusted_text`
quotes foreign text. Begin with `build_context`.
"""
