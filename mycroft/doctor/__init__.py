"""Whether this host is ready to be traced: facts are gathered at the edges, judged by pure functions."""
