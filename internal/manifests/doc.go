// Package manifests reads the manifests in docs/deploy as Kubernetes and Docker Compose do, so that
// a wrong name or type of a field fails.
package manifests
