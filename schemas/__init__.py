"""The one home of every format: records, envelope, topics, incidents, tables."""
