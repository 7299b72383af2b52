"""The fork server of `local.py` imports this module, and with it what jobs need, so that no worker imports it again."""

from __future__ import annotations

import atexit
import os
import sys
from importlib.machinery import ModuleSpec

from scaling.executors.executor import FILE, MODULE

# A worker would run the file of the command's `__main__`, a person's script, unless its own `__main__` is that file.
main = sys.modules["__main__"]
if FILE in os.environ:
    main.__file__ = os.environ[FILE]
if MODULE in os.environ:
    main.__spec__ = ModuleSpec(os.environ[MODULE], None)

atexit.register(os._exit, 0)  # with the last process that may ask for another; torch would take seconds to tidy up
