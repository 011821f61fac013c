"""Real NCCL on a real GPU, with and without the plugin: run.sh. Standard library only, but for the tests."""
