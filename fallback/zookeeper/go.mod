module github.com/holdfast-go/holdfast/fallback/zookeeper

go 1.26.0

replace github.com/holdfast-go/holdfast => ../..

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-go/holdfast v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/buraksezer/consistent v1.0.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
)
