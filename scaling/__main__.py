"""`scaling`, which is `python -m scaling`."""

import sys


def run() -> int:
    """The command line; an interrupt while it is still being imported ends it as one later does."""
    try:
        from scaling.verbs.command_line import main

        code = main()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if code:
        from scaling.base.signals import leave
        from scaling.training.ranks import launched

        if launched():  # the others wait for this rank, which waits for nobody
            leave(code)
    return code


if __name__ == "__main__":
    sys.exit(run())
