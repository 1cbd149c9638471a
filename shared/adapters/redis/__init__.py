"""The doorbell: announcements, shared counts and the queue of jobs.

Nothing here is truth; Redis may vanish at any moment. Begin with `announcer`.
"""
