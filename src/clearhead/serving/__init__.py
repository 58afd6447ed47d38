"""A model over HTTP: the API and the page that opens it up. `app` puts the parts together, `traces` does the work."""
