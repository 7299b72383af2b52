"""Ray: jobs as tasks of a Ray cluster, which places them by their threads and their fraction of a GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from scaling.base.errors import imported
from scaling.base.signals import take_back
from scaling.config import schema
from scaling.executors import End, Executor, Handle, ended


class Ray(Executor):
    """Tasks of the cluster at `address` among the `parameters`, or of this machine; `num_cpus`, `num_gpus` and further
    options of `ray.remote` among them hold for every job.
    """

    def __init__(self, workers: int | None, parameters: Mapping[str, Any]):
        log = "the logs of Ray: /tmp/ray/session_latest/logs on each machine, and its dashboard"
        super().__init__(workers or sys.maxsize, log)
        fix = "install it: pip install 'scaling[ray]'"
        self.ray = imported("ray", "Ray is not installed", fix, key="--executor", value="ray")
        self.options = {key: value for key, value in parameters.items() if key != "address"}
        address = parameters.get("address")
        self.ray.init(
            address, ignore_reinit_error=True, include_dashboard=None if address else False, log_to_driver=False
        )
        take_back()  # Ray takes SIGTERM, and would end the command at once
        self.tasks: dict[Any, Handle] = {}  # those that have not ended

    def begin(self) -> None:
        """All of them: Ray has them wait."""
        for handle in self.waiting:
            takes, memory = handle.resources, handle.resources.memory
            options = {"num_cpus": takes.threads, "num_gpus": takes.gpus, **self.options}
            if memory is not None:
                options.setdefault("memory", int(memory * 1e9))
            # The scheduler tries again what dies, and counts.
            task = self.ray.remote(_do).options(name=handle.name, max_retries=0, **options)
            handle.place = task.remote(schema.extensions(), handle.call)
            self.tasks[handle.place] = handle
        self.waiting.clear()

    def wait(self, timeout: float) -> None:
        if not self.tasks:
            time.sleep(timeout)
            return
        for task in self.ray.wait(list(self.tasks), num_returns=1, timeout=timeout)[0]:
            try:
                end = self.ray.get(task)
            except self.ray.exceptions.RayError as error:
                end = End("died", reason=str(error).strip().partition("\n")[0])
            self.tasks.pop(task).end = end

    def kill(self, handle: Handle, number: int) -> None:
        """Interrupt the task, which saves its run and leaves, whatever the number of the signal."""
        self.ray.cancel(handle.place)

    def close(self) -> None:
        for task in self.tasks:
            self.ray.cancel(task)
        if self.tasks:
            self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=60.0)
        self.ray.shutdown()


def _do(extensions: Sequence[str], call: tuple[Any, ...]) -> End:
    """Do a job, in a process of Ray's, which does several."""
    for path in extensions:
        if path not in schema.extensions():
            schema.extend(path)
    return ended(*call)
