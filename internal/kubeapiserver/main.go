// Command kubeapiserver is Kubernetes's API server. The tests of fallback/kubernetes run it on a
// real etcd.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
