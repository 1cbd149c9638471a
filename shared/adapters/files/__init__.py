"""Files and pages from outside, opened safely.

Whatever strangers send is parsed in `sandbox_worker`, a process without rights; the workspaces of agents
and their knowledge are read here, too. Begin with `file_reading`.
"""
