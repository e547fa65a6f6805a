// Command versitygw is the Versity S3 Gateway, which listens at the address of its first argument
// and keeps its buckets in the directory of its second one. Several may share a directory. The
// tests of fallback/s3 run it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves buckets, whose metadata are extended attributes of their files. In files beside them,
// which the gateway can have as well, an ETag may be newer than the contents that come with it.
func run(addr, dir string) error {
	objects := dir + "/buckets"
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	if err := (meta.XattrMeta{}).Test(objects); err != nil {
		return err
	}
	disk, err := posix.New(objects, meta.XattrMeta{}, posix.PosixOpts{ValidateBucketNames: true})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), disk, &embedgw.Config{
		RootUserAccess: "holdfast", RootUserSecret: "holdfast-secret", Ports: []string{addr}, IAMDir: dir, Quiet: true, KeepAlive: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
	})
}
