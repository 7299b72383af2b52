"""From a file and a command line to objects: the composer and the schema."""
