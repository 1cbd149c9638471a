"""Compaction: turns to hide, and facts that must survive. `plan` chooses the turns and renders them,
`summary_prompts` asks for a summary, `next_ledger` makes a record of the answer, `audit` rejects one that
lost or invented something, `jobs` decides when. Begin with `plan`.
"""
