package coord

// Store is the ShareStore that Share uses by default.
func Store(c *Coordinator) (ShareStore, error) { return c.store() }

// Filled returns options with the defaults.
func Filled(o *Options) Options { return o.filled() }
