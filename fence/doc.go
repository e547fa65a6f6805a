// Package fence is for resources that look at a lock's token. So far it has the tests of what README
// and docs/fencing.md say: real databases, whose clients stop between any two statements.
package fence
