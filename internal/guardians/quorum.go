package guardians

// MaxGuardians is the most guardians that a session may have.
const MaxGuardians = 5

// Quorum returns how many of n guardians have to promise for their session to be valid, and how many
// have to vote for it to be buried. The two numbers are n+1 together, so a session that is valid can
// not be buried. A session without guardians needs no promise, and no votes bury it: votes is 1,
// which it never gets.
func Quorum(n int) (promises, votes int) {
	votes = n/2 + 1
	return n + 1 - votes, votes
}
