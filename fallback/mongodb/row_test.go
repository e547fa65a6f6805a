//go:build unix

package mongodb

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/storetest/owners"
)

func TestMongodb_Row(t *testing.T) {
	at := func(addr string) *server { return &server{t: t, addr: addr} }
	owners.Row(t, owners.Store{
		Name:  "MongoDB",
		Serve: func() string { return startServer(t).addr },
		Open:  func(addr string) fallback.Arbiter { return at(addr).arbiter() },
		Usual: func(addr string) func(context.Context, string) (func() error, error) { // a document that must not be there yet
			locks := at(addr).client(nil).Database("usual").Collection("locks")
			return func(ctx context.Context, key string) (func() error, error) {
				_, err := locks.InsertOne(ctx, bson.D{{Key: "_id", Value: key}})
				return func() error {
					_, err := locks.DeleteOne(ctx, bson.D{{Key: "_id", Value: key}})
					return err
				}, err
			}
		},
	})
}
