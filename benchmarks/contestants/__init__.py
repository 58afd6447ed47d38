"""One file a contestant, each a process of its own that speaks the protocol of `benchmarks.protocol`."""
