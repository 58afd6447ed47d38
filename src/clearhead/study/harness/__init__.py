"""The harness of studies: cells, processes, results, rules and charts."""
