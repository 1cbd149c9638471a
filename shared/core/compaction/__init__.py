"""What a compaction hides, and what must survive it.

`plan` chooses the turns and puts them into words, `summary_prompts` asks for a summary, `next_ledger` makes
a record of the answer, `audit` rejects one that lost or invented something, `jobs` decides when. Begin with
`plan`.
"""
