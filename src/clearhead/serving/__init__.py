"""HTTP API and inspection page.

`app` defines the routes, `server` runs them with connection limits and timeouts, `trace_store` makes and keeps traces,
`json_views` turns traces into JSON, and `page` contains the page. Only `json_views` imports torch.
"""
