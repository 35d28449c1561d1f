package tfiproxy

import "github.com/sequencefi/sequencefi/plugin/tfi"

// readRequest reads and scans the next request head; it stays in c.in.
func (c *conn) readRequest() error {
	limit := c.proxy.cfg.Limits.HeadBytes
	for searched := 0; ; {
		data := c.in.data()
		for len(data) > 1 && data[0] == '\r' && data[1] == '\n' { // ignored, by RFC 9112, 2.2
			c.in.skip(2)
			data, searched = data[2:], 0
		}
		if len(data) > 0 {
			if c.exchange == nil {
				c.exchange = new(exchange)
			}
			if size := headEnd(data, searched); size > 0 {
				if size > limit {
					return errHeadSize
				}
				c.gate = c.proxy.policies.gate.Load()
				header := ""
				if c.gate != nil {
					header = c.gate.header
				}
				err := c.req.scan(data[:size], header)
				if err == nil && c.req.h2c {
					c.in.w = c.in.r + declineHTTP2(data, size)
					err = c.rescan(header)
				}
				if err == nil && c.req.evidence && c.strays() {
					c.in.w = c.in.r + dropField(c.in.data(), c.req.size, tfi.EvidenceHeader)
					err = c.rescan(header)
				}
				return err
			}
			if bareLF(data, searched) {
				return errHeadForm
			}
			if searched = len(data); searched >= limit {
				return errHeadSize
			}
			if phase(c.phase.Load()) != phaseHead {
				c.enter(phaseHead)
			}
			if !c.in.makeRoom() {
				c.in = grown(c.in)
			}
		} else {
			putBuffer(c.in)
			c.in = nil
			c.enter(phaseIdle)
			if err := c.readIdle(); err != nil {
				return err
			}
			continue
		}
		var err error
		if c.in, err = c.down.read(c.in); err != nil {
			return err
		}
	}
}

// rescan scans the request's head again, which has been edited.
func (c *conn) rescan(header string) error {
	data := c.in.data()
	return c.req.scan(data[:headEnd(data, 0)], header)
}

// strays tells whether the request's evidence would reach an application, since the
// engine will not see it: the policy may have lapsed, or a client made it up.
func (c *conn) strays() bool {
	return c.listener.role() == tfi.RoleServer && (c.gate == nil || !c.gate.wants(&c.req.headFields))
}
