"""`python -m egm`: the command line."""

import sys

from egm.cli import main

if __name__ == "__main__":
    sys.exit(main())
