"""What turns speech into words: a service that speaks OpenAI's transcription API, or a model on this machine.

Begin with `transcriptions`. Neither decodes a recording in a process of ours that does anything else.
"""
