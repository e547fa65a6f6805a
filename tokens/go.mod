module github.com/holdfast-go/holdfast/tokens

go 1.26.0

replace github.com/holdfast-go/holdfast => ..

require (
	github.com/buraksezer/consistent v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

require (
	github.com/holdfast-go/holdfast v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
	golang.org/x/oauth2 v0.37.0
)
