"""Slowness: windows, rates, baselines, triggers, clock offsets and who made others wait."""
