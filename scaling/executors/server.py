"""The fork server of `local.py` imports this first: Ctrl-C is for the command, which hands it on to its workers."""

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
