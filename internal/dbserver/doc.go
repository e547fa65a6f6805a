// Package dbserver starts database servers for tests and examples. Each has a directory of its own,
// and ends with the process that started it.
package dbserver
