"""Ray: jobs as tasks of a Ray cluster, which places them by their threads and their fraction of a GPU."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from scaling.base.errors import ScalingError
from scaling.base.signals import take_back
from scaling.config import schema
from scaling.executors import ONE_THREAD, End, Handle, Resources, Status, ended


class RayHandle(Handle):
    """A task of Ray."""

    executor: Ray

    def __init__(self, executor: Ray, name: str, reference: Any):
        super().__init__(executor, name)
        self.reference = reference

    def status(self) -> Status:
        ray = self.executor.ray
        if self.end is None and ray.wait([self.reference], timeout=0)[0]:
            try:
                self.end = ray.get(self.reference)
            except ray.exceptions.TaskCancelledError:
                self.end = End("cancelled", reason="it was cancelled")
            except ray.exceptions.RayError as error:
                self.end = End("died", reason=str(error).strip().partition("\n")[0])
        return "running" if self.end is None else self.end.status

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Interrupt the task, which saves its run and leaves, whatever the number of the signal."""
        self.executor.ray.cancel(self.reference)


class Ray:
    """Tasks of the cluster at `address` among the `parameters`, or of this machine; `num_cpus`, `num_gpus` and further
    options of `ray.remote` among them hold for every job.
    """

    log = "the logs of Ray: /tmp/ray/session_latest/logs on each machine, and its dashboard"

    def __init__(self, workers: int | None, parameters: Mapping[str, Any]):
        try:
            self.ray: Any = import_module("ray")
        except ImportError:
            fix = "install it: pip install 'scaling[ray]'"
            raise ScalingError("Ray is not installed", key="--executor", value="ray", fix=fix) from None
        self.slots = workers or sys.maxsize
        self.options = {key: value for key, value in parameters.items() if key != "address"}
        address = parameters.get("address")
        self.ray.init(
            address, ignore_reinit_error=True, include_dashboard=None if address else False, log_to_driver=False
        )
        take_back()  # Ray takes SIGTERM, and would end the command at once
        self.handles: list[RayHandle] = []

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> RayHandle:
        options = {"num_cpus": resources.threads, "num_gpus": resources.gpus, **self.options}
        if resources.memory is not None:
            options.setdefault("memory", int(resources.memory * 1e9))
        # The scheduler tries again what dies, and counts.
        task = self.ray.remote(_do).options(name=name, max_retries=0, **options)
        self.handles.append(RayHandle(self, name, task.remote(name, schema.extensions(), function, arguments)))
        return self.handles[-1]

    def wait(self, timeout: float) -> None:
        self.handles = [handle for handle in self.handles if handle.end is None]
        references = [handle.reference for handle in self.handles]
        if references:
            self.ray.wait(references, timeout=timeout)
        else:
            time.sleep(timeout)

    def close(self) -> None:
        left = [handle for handle in self.handles if handle.wait(0) is None]
        for handle in left:
            handle.cancel()
        if left:
            self.ray.wait([handle.reference for handle in left], num_returns=len(left), timeout=60.0)
        self.ray.shutdown()


def _do(name: str, extensions: Sequence[str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> End:
    """Do a job, in a process of Ray's, which does several."""
    for path in extensions:
        if path not in schema.extensions():
            schema.extend(path)
    return ended(name, function, arguments)
