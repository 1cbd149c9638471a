"""What turns speech into words, and words into speech: servers with OpenAI's audio API, or a local model.

Begin with `audio_service`. No recording is decoded in a process of ours that does anything else.
"""
