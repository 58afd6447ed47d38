"""Devices, threads, processes and machines: data parallelism and FSDP2.

Of `training`, imports only `training.loop.callbacks`.
"""
