"""Run the command line of egm when Python is started with `python -m egm`."""

import sys

from egm.cli import main

if __name__ == "__main__":
    sys.exit(main())
