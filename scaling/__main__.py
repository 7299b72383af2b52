"""`python -m scaling` is `scaling`."""

import sys

from scaling.cli import main

if __name__ == "__main__":
    sys.exit(main())
