package peer_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/peer"
)

// node answers requests with grants, and says which grants it got.
type node struct {
	up    chan *peer.Stream
	grant chan string
}

func (n node) Up(s *peer.Stream)        { n.up <- s }
func (n node) Down(*peer.Stream, error) {}

func (n node) Frame(s *peer.Stream, f *peer.Frame) {
	switch f.Kind {
	case peer.Request:
		f.Kind, f.Token, f.Count = peer.Grant, 7<<32, 100
		s.Send(f) // written when the batch that was read is used up
	case peer.Grant:
		n.grant <- fmt.Sprintf("%s: %d tokens from %d", f.Key, f.Count, f.Token) // f is gone afterwards
	}
}

// Two nodes, and one request.
func Example() {
	a := node{make(chan *peer.Stream, 1), make(chan string, 1)}
	b := node{make(chan *peer.Stream, 1), make(chan string, 1)}
	ta, err := peer.Start(peer.Options{Node: "a", Handler: a})
	if err != nil {
		panic(err)
	}
	defer ta.Close()
	tb, err := peer.Start(peer.Options{Node: "b", Handler: b})
	if err != nil {
		panic(err)
	}
	defer tb.Close()

	list := map[string]string{"a": ta.Addr(), "b": tb.Addr()}
	ta.SetPeers(list)
	tb.SetPeers(list)

	s := <-a.up
	s.Send(&peer.Frame{Kind: peer.Request, Request: 1, Key: []byte("orders/17")})
	fmt.Println(<-a.grant)
	// Output: orders/17: 100 tokens from 30064771072
}
