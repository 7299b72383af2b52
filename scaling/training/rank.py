"""One rank of a run; the supervisor starts `python -m scaling.training.rank CONFIG FAILURE HOW [EXTENSION …]`."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from scaling import parent
from scaling.errors import ScalingError
from scaling.standard_error import keep_going
from scaling.training.signals import Stopped, leave, listening


def main(config: str, failure: str, how: str, *extensions: str) -> int:
    """The exit code; what went wrong is written to the file `failure`, of which the supervisor reports the first.

    `how`: the steps of a trunk, "again" for a run that is done and trained again, or nothing.
    """
    keep_going()
    parent.follow()  # before what takes seconds to import
    try:
        with listening(to_the_end=True):
            from scaling.config import load
            from scaling.schema import extend
            from scaling.training.progress import teller
            from scaling.training.run import Observers, grow, train

            for extension in extensions:
                extend(extension)
            resolved = load(config)
            with teller() as tell:
                if how in ("", "again"):
                    train(resolved, Observers([tell]), again=how == "again")
                else:
                    grow(resolved, int(how), Observers([tell]))
        return 0
    except Stopped as stopped:
        leave(stopped.code)
    except ScalingError as error:
        Path(failure).write_text(str(error))
        leave(error.code)
    except BaseException:
        Path(failure).write_text(traceback.format_exc())
        leave(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
