"""Process that runs silent jobs; it cannot send anything to a person.

`jobs` has the functions of arq and the loops, `duties` the work by the clock. Begin with `jobs`.
"""
