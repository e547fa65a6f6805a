// Command drill makes faults happen in a cluster of five real processes, each on a host of its own
// (a network namespace). A real Redis server is on a sixth. For each fault it then looks where an
// operator would: at "holdfast doctor", "holdfast top", the page of package debug, and the metrics
// that the dashboard and the alert rules use. Each has to name the cause.
//
//	make drill                       # all scenes, with a real Prometheus and the alert rules
//	go run ./internal/drill -short   # as in make test: without Prometheus
//	go run ./internal/drill -only "stuck holder"
//
// It needs root on Linux, iproute2, iptables and redis-server. docs/runbook.md shows its scenes.
package main
