package main

import "github.com/holdfast-go/holdfast/coord"

func main() {
	//snippet
	_ = cluster
}
