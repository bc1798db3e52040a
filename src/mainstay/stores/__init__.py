"""Where records live. One module a store, loaded when its URL is used."""
