"""The studies of the claims C1 to C15; claims about one subject share a module. May import `study.harness`."""
