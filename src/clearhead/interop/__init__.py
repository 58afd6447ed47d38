"""Models of other toolkits in, our models out: a table of names for each."""
