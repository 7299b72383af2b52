"""`scaling`, which is `python -m scaling`."""

import sys


def run() -> int:
    """The command line; an interrupt while it is still being imported ends it as one later does."""
    try:
        from scaling.cli import main

        code = main()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from scaling.training import ranks

        if not ranks.launched():
            raise
        sys.excepthook(type(error), error, error.__traceback__)
        ranks.fail(error)
    if code:
        from scaling.training import ranks

        if ranks.launched():
            ranks.signals.leave(code)
    return code


if __name__ == "__main__":
    sys.exit(run())
