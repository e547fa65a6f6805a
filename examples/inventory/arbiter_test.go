package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The main job, on each arbiter. Those of stores_more.go: make arbiters.
func TestSaleOverOtherArbiters(t *testing.T) {
	programs := map[string]string{
		"mysql": "mariadb-install-db", "sqlite": "", "etcd": "etcd", "zookeeper": "java", "quorum": "redis-server", "postgres": "", "redis": "",
		"s3": "../../internal/versitygw/versitygw", "kubernetes": "../../internal/kubeapiserver/kubeapiserver",
		"mongodb": "../../internal/ferretdb/ferretdb", "consul": "",
	}
	for _, x := range arbiterStores {
		store := x.name
		t.Run(store, func(t *testing.T) {
			program, known := programs[store]
			if !known {
				t.Fatal("this test does not know the store")
			}
			if store == "postgres" {
				needPostgres(t)
			}
			if _, err := exec.LookPath(program); err != nil && program != "" {
				t.Skip(err)
			}
			if _, err := os.Stat(zookeeperJar); err != nil && store == "zookeeper" {
				t.Skip(err)
			}
			code, stdout, stderr := sell(t, t.Context(), "-rungs ring -duration 500ms -processes 2 -goroutines 2 -skus 2 -arbiter "+store)
			if code != 0 || !strings.Contains(stdout, "the arbiter is on "+store) || !strings.Contains(stdout, "No unit was sold twice") {
				t.Errorf("status %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}
