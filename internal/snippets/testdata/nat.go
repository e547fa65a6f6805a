package main

import (
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/gossip"
)

func main() {
	//snippet
	_ = cluster
}
