package main

import (
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/gossip"
)

func shared(gossipKey, peerKey []byte) *coord.Cluster {
	//snippet
	return cluster
}

func main() { _ = shared }
