"""Run the command line of egm by `python -m egm`."""

import sys

from egm.cli import main

if __name__ == "__main__":
    sys.exit(main())
