package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	holdfastprometheus "github.com/holdfast-go/holdfast/metrics/prometheus"
)

func metrics(locks *holdfast.Coordinator) {
	//snippet
}

func main() { _ = metrics }
