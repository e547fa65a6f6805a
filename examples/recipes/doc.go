// Package recipes has programs of 30 to 100 lines, one per file, each for a task that several
// processes share. Each runs as a test (go test ./examples/recipes), without a server.
// docs/recipes.md lists them.
package recipes
