package main

import (
	"log"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/peer"
)

func secured() *coord.Options {
	//snippet
	return options
}

func main() { _ = secured }
