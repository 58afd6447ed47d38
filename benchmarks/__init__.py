"""Side-by-side runs of clearhead and other toolkits; `make bench DATA=<folder>` runs them all."""
