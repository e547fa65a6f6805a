package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

var socketScenes = []scene{
	// Always by HTTP/1.1, beside the server's other protocol.
	{name: "WebSocket", handler: func(_ *trial, w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }() // an error if it is closed already
		for {
			kind, text, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if string(text) == "bye" {
				c.Close(4001, "bye")
				return
			}
			if err := c.Write(r.Context(), kind, append(text, '!')); err != nil {
				return
			}
		}
	}, client: func(x *trial, got *seen) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		h := http.Header{}
		for k, v := range x.headers() {
			h.Set(k, v)
		}
		url := "ws" + strings.TrimPrefix(x.pair.at(), "http") + "/" + x.stack + "/" + x.scene.name
		c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: x.pair.upgrade, HTTPHeader: h, Subprotocols: []string{"chat"}})
		got.head(res, err)
		if err != nil {
			return
		}
		delete(got.Header, "Sec-Websocket-Accept")
		defer func() { _ = c.CloseNow() }()
		for _, text := range []string{"one", strings.Repeat("x", 20_000), "bye"} {
			if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
				got.failed(err)
			}
			_, answer, err := c.Read(ctx)
			got.Body += string(answer)
			if text == "bye" {
				got.note("closed: %v", err)
			} else if err != nil {
				got.failed(err)
			}
		}
	}},
}
