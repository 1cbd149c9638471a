"""`python -m tests.kit.fakes.strict_proxy --upstream PORT`; prints its port."""

from __future__ import annotations

import argparse

from tests.kit.fakes.lifetime import live
from tests.kit.fakes.strict_proxy.server import add_arguments, start

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    live(parser, start)
