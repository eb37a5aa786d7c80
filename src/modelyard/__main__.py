"""`python -m modelyard`."""

import sys

from modelyard import cli

if __name__ == "__main__":
    sys.exit(cli.main())
