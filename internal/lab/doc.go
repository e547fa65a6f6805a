// Package lab runs README's own program on several hosts: network namespaces, each with an address
// of its own and no loopback interface in common, with a real Redis server on one of them. It is
// all tests:
//
//	make lab
//
// The short form is part of make test. Both need Linux, root, iproute2, iptables and redis-server.
package lab
