"""`scaling`, which is `python -m scaling`."""

import sys


def run() -> int:
    """The command line; an interrupt while it is still being imported ends it as one later does."""
    try:
        from scaling.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
