package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/coord"
	holdfastprometheus "github.com/holdfast-go/holdfast/metrics/prometheus"
)

func waits(opts *coord.Options) {
	//snippet
}

func main() { _ = waits }
