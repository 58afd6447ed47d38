"""The command line: one file a verb. Each parses, calls the library and prints; none computes."""
