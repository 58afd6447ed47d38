"""Several threads, processes, machines and devices: data parallelism and FSDP2."""
