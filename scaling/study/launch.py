"""Launch: workers started on this machine or by SLURM, watched until the study is done. One dies, the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from scaling import parent
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.study.plan import Plan
from scaling.study.progress import Progress, Watch
from scaling.study.size import Size, sized

LOOK = 0.5  # seconds between looks at the ledger, at least
SHARE = 0.1  # of the watching process's time that looking may take, so that ten thousand runs are looked at more rarely

Launcher = Literal["local", "slurm"]


class Crew(Protocol):
    """Workers that were started."""

    def alive(self) -> bool: ...

    def stop(self) -> None:
        """Have each save its run at the next step and leave."""
        ...


def train(
    ledger: Ledger,
    name: str,
    found: Plan,
    tell: Callable[[Progress], None],
    *,
    workers: int | None = None,
    launcher: Launcher = "local",
    parameters: Mapping[str, Any] | None = None,
) -> None:
    """Train what is not done of the study that was entered under `name`; `tell` hears how far it is."""
    watch = Watch(ledger, found)
    now = watch.look()
    tell(now)
    if now.settled == now.planned:
        return
    folder = ledger.study_folder(name)
    command = [sys.executable, "-m", "scaling", "work", name, f"runs={ledger.root.resolve()}"]
    if launcher == "slurm":
        crew: Crew = Submitted(command, workers or 1, folder / "slurm", parameters or {})
    else:
        crew = Local(command, sized(found, workers), now.planned - now.settled, folder / "workers.log")
    try:
        while crew.alive():
            begun = time.monotonic()
            tell(watch.look())
            time.sleep(max(LOOK, (time.monotonic() - begun) / SHARE))
    except BaseException:
        crew.stop()
        raise
    tell(watch.look())


class Local:
    """Processes of this machine, each with its threads and its GPU."""

    def __init__(self, command: Sequence[str], size: Size, most: int, log: Path):
        with log.open("ab") as told:
            self.processes = [_started(command, size, number, told) for number in range(min(size.workers, most))]

    def alive(self) -> bool:
        return any(process.poll() is None for process in self.processes)

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait()


def _started(command: Sequence[str], size: Size, number: int, told: IO[bytes]) -> subprocess.Popen[bytes]:
    own = {**parent.named(), "OMP_NUM_THREADS": str(size.threads), "MKL_NUM_THREADS": str(size.threads)}
    if size.gpus:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else [str(index) for index in range(size.gpus)]
        own["CUDA_VISIBLE_DEVICES"] = names[number % size.gpus]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=told, stderr=told, stdin=subprocess.DEVNULL)


class Submitted:
    """An array of SLURM jobs, each one worker; `parameters` are sbatch's, as submitit names them."""

    def __init__(
        self, command: Sequence[str], workers: int, folder: Path, parameters: Mapping[str, Any], cluster: str = "slurm"
    ):
        try:
            import submitit
        except ImportError:
            mend = "install it: pip install 'scaling[slurm]'"
            raise ScalingError(
                "SLURM is spoken to through submitit", key="--launcher", value="slurm", mend=mend
            ) from None
        try:
            executor = submitit.AutoExecutor(folder, cluster=cluster)
            executor.update_parameters(**parameters)
        except (RuntimeError, NameError, TypeError) as error:
            what = " ".join(str(error).split())
            raise ScalingError(f"submitit refuses: {what}", key="--launcher", value="slurm") from None
        work = submitit.helpers.CommandFunction(list(command), verbose=False)
        with executor.batch():
            self.jobs = [executor.submit(work) for _ in range(workers)]

    def alive(self) -> bool:
        return any(not job.done() for job in self.jobs)

    def stop(self) -> None:
        for job in self.jobs:
            job.cancel()
