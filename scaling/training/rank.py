"""One rank of a run: the program that `start_ranks` starts."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace

from scaling import parent
from scaling.errors import ScalingError
from scaling.schema import extend
from scaling.standard_error import keep_going
from scaling.training import ranks, signals


def main(config: str, steps: str, shown: str, *extended: str) -> int:
    """Train as one of the ranks that `start_ranks` starts: a run, or its trunk up to `steps`."""
    keep_going()
    parent.follow()  # before what takes seconds to import
    try:
        with signals.listening(to_the_end=True):
            from scaling.config import load
            from scaling.ledger import Ledger
            from scaling.training.experiment import assemble
            from scaling.training.progress import teller
            from scaling.training.run import Observers, train, train_run

            for extension in extended:
                extend(extension)
            experiment = assemble(load(config))
            with teller() if shown else nullcontext() as listener:
                observers = Observers([] if listener is None else [listener])
                if not steps:
                    train(experiment, observers)
                elif (trunk := experiment.trunk()) is not None:
                    ledger = Ledger.create(experiment.config["runs"]) if ranks.first() else None
                    train_run(replace(trunk[0], steps=int(steps)), ledger, observers)
        return 0
    except signals.Stopped as stopped:
        signals.leave(stopped.code)
    except ScalingError as error:
        ranks.fail(error, error.code)
    except BaseException as error:
        ranks.fail(error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
