"""The fork server of `local.py` imports this module first: a terminal's Ctrl-C is for the command, which hands it on."""

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
