"""Steps of `./evertalk up` that need heavy libraries, in a process that ends when Evertalk has started.

The supervisor lives for months and stays small: migrations and the lines for the terminal are made
elsewhere. `assistant` starts that process and asks it; `steps` is what it does. Begin with `assistant`.
"""
