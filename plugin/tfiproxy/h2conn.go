package tfiproxy

func (c *conn) serveHTTP2() {}
