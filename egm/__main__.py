"""Start the command line: the command `egm` and `python -m egm` both begin here.

To import the command line takes about a second, and a signal such as Ctrl-C must end this second as it ends a command.
Therefore this module imports hardly anything else before it handles signals.
"""

import sys

from egm._cli.terminal import Stops

__all__ = ["main"]


def main() -> int:
    """Import and run the command line; return its exit code, which after a signal is 128 plus the signal's number."""
    stops = Stops(are_last=True)
    try:
        with stops:
            from egm import cli

            stops.check()  # the imports may have caught the exception
            code = cli._run(None, stops)
    except BaseException:  # NumPy can turn a KeyboardInterrupt during its import into another error
        if not stops.received:
            raise
        code = stops.reported()
    exec("")  # makes Python forget a KeyboardInterrupt in an earlier `exec`, for which it would end itself by a signal
    return code


if __name__ == "__main__":
    sys.exit(main())
