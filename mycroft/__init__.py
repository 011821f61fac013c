"""The command line, settings and the local stack."""
