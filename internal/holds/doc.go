// Command holds shows the fate of many locks that are held while nodes and servers go. It starts
// real processes and redis-servers, and has some of the processes hold as many locks as asked for.
// Then it lets one node leave, kills another, lets Redis fail over, stops it for five seconds, and
// replaces it by an empty one. After each it counts the locks that were lost. See docs/holds.md.
//
//	go run ./internal/holds -holds 1000000 -nodes 8
package main
