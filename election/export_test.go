package election

// Balance is plan.balance.
func Balance(p, members []string, n int) []string { return plan(p).balance(members, n) }

// DecodePlan is decodePlan.
func DecodePlan(text []byte) ([]string, bool) { return decodePlan(text) }

// EncodePlan is plan.encode.
func EncodePlan(p []string) string { return plan(p).encode() }
