"""The command line: one module per command. A command parses options, calls the library and prints the result."""
