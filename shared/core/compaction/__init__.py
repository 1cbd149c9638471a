"""What a compaction hides, and what must survive it.

`plan` chooses the turns, `summary_prompts` asks for a summary, `audit` and `grounding` reject one that
lost or invented something, `jobs` decides when. Begin with `plan`.
"""
