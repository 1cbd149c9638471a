"""Long-term memory: notes, recall and knowledge.

Tools let a model save, change and find notes and search hidden messages; indexers make messages, notes and
files searchable; a nightly job merges duplicate notes. Begin with `memory_tools`.
"""
