package s3

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestS3_Row(t *testing.T) {
	client := func(url string) *awss3.Client {
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		t.Cleanup(transport.CloseIdleConnections)
		return clientOf(transport, url, "holdfast", "holdfast-secret")
	}
	owners.Row(t, owners.Store{
		Name:    "S3",
		Options: coord.Options{SessionTTL: 30 * time.Second},
		Serve:   func() string { return "http://" + startGateway(t, 1).addrs[0] },
		Open:    func(url string) fallback.Arbiter { return New(client(url), &Options{Bucket: bucket, ColdStart: true}) },
		Usual: func(url string) func(context.Context, string) (func() error, error) { // an object that must not be there yet
			c, none, name := client(url), "*", bucket
			return func(ctx context.Context, key string) (func() error, error) {
				_, err := c.PutObject(ctx, &awss3.PutObjectInput{Bucket: &name, Key: &key, IfNoneMatch: &none, Body: strings.NewReader("held")})
				return func() error {
					_, err := c.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &name, Key: &key})
					return err
				}, err
			}
		},
	})
}
