"""PyTorch Flight Recorder dumps as a source."""
