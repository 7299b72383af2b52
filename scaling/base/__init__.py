"""What every room uses: errors, printing, files, processes; and the version, which the build reads too."""

__version__ = "0.1.0"
