"""The fork server of `local.py` imports this last: it leaves at once, where torch would take seconds to tidy up."""

import atexit
import os

atexit.register(os._exit, 0)
