"""Sources: what turns hosts and recordings into records on Kafka."""
