package fallback

// A Locator is an [Arbiter] that knows where its servers are. A node listens on the address that
// leads there, unless it is told another one.
type Locator interface {
	// Servers returns addresses of servers, host:port, as they are configured. It makes no request.
	// Nil: they are not known.
	Servers() []string
}
