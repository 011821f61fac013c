"""Stream processing: watch, diagnose and the sink."""
