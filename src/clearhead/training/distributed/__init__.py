"""Devices, threads, processes and machines: data parallelism and FSDP2."""
