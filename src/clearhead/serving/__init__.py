"""HTTP API and inspection page.

`app` defines the routes, `server` runs them with connection limits and timeouts, `trace_store` computes and stores
traces, `json_views` converts traces to JSON, and `page` contains the files of the page. The modules can be imported
without torch, except `json_views`.
"""
