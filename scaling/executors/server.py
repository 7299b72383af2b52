"""The fork server of `local.py` imports this module: it leaves at once, where torch would take seconds to tidy up."""

import atexit
import os
import signal
from importlib import import_module

signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the command too, which hands it on
import_module("scaling.training.run")  # a later room
atexit.register(os._exit, 0)
