"""The whole stack on one machine, embedded."""
