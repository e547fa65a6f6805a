// Package mongodb is an arbiter on a replica set of MongoDB, which loses nothing that a majority
// has acknowledged.
//
//	client, err := mongo.Connect(options.Client().ApplyURI(uri))
//	c, err := coord.New(ctx, mongodb.New(client, nil), &coord.Options{Namespace: "orders"})
//
// README.md lists its costs, the failures that it survives, and the untried cases.
package mongodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/standin"
)

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	// Database has the collection. Empty: "holdfast".
	Database string

	// Collection has all records. Empty: "records".
	Collection string

	// ColdStart says that a namespace that is missing is new. Without it, one begins with Grace (12
	// s by default): its records may have been deleted while processes use it. For tests, demos and
	// development, and for tools that make a namespace before processes use it.
	ColdStart bool
}

// New returns an arbiter on the replica set of a client, which stays the caller's to disconnect. It
// does no I/O. opts may be nil. The arbiter is Durable, needs no clock of the store's, and has no
// messages ([fallback.Mute]).
//
// Writes have the concern majority with the journal, and reads are linearizable, whatever the
// client's concerns are.
func New(client *mongo.Client, opts *Options) fallback.Arbiter {
	return fallback.NewRecords(newStore(client, opts), recordsOptions(opts))
}

func recordsOptions(opts *Options) *fallback.RecordsOptions {
	return &fallback.RecordsOptions{Durable: true, NoClock: true, ColdStart: opts != nil && opts.ColdStart}
}

func newStore(client *mongo.Client, opts *Options) *store {
	s := &store{client: client, database: "holdfast", collection: "records"}
	if opts != nil && opts.Database != "" {
		s.database = opts.Database
	}
	if opts != nil && opts.Collection != "" {
		s.collection = opts.Collection
	}
	return s
}

const (
	// The records of a read are in one answer, which has up to 16 MiB: further ones would not be
	// linearizable.
	maxReads = 10
	maxBytes = 1 << 20

	// tryFor is for how long a read is tried at first.
	tryFor = 2 * time.Second

	// atOnce is how many requests of one call are on their way.
	atOnce = 16

	pauseFor = 50 * time.Millisecond
)

// store is a collection, a [fallback.Records].
type store struct {
	client               *mongo.Client
	database, collection string
}

// A document is a record, or the mark, which has no value. Its version is random: no two are the
// same, also over a restore.
type document struct {
	ID      string `bson:"_id"`
	Version string `bson:"version"`
	Value   []byte `bson:"value"`
}

// markID is that of the mark, a random text. It comes after all records in the order of the index,
// in which they are read.
const markID = "server"

func recordID(key string) string { return "record/" + key }

func refusal(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{fallback.ErrRefused}, args...)...)
}

// denied marks the answer of a server that does not let this client in, or refuses it a right.
func denied(err error) error { return fmt.Errorf("%w: %w", fallback.ErrDenied, err) }

func notSent(err error) error { return fmt.Errorf("%w: %w", fallback.ErrNotSent, err) }

func (s *store) records() *mongo.Collection {
	journal := true
	return s.client.Database(s.database).Collection(s.collection, options.Collection().
		SetReadConcern(readconcern.Linearizable()).SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.Majority().W, Journal: &journal}))
}

// Open implements [fallback.Records]. It makes the mark.
func (s *store) Open(ctx context.Context) error {
	if s.client == nil {
		return refusal("the client is nil")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !standin.MongoDB.Load() {
		if err := s.check(ctx); err != nil {
			return err
		}
	}
	_, err := s.Load(ctx, nil)
	return err
}

// check refuses FerretDB, and a server in no replica set, unless it is a mongos.
func (s *store) check(ctx context.Context) error {
	var is struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	var build struct {
		Ferret  any `bson:"ferretdb"`
		Ferret1 any `bson:"ferretdbVersion"`
	}
	admin := s.client.Database("admin")
	if err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&is); err != nil {
		return s.explain(err)
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build); err != nil {
		return s.explain(err)
	}
	switch {
	case build.Ferret != nil || build.Ferret1 != nil:
		return refusal("the server is FerretDB, which does not compare and set a document in one step")
	case is.SetName == "" && is.Msg != "isdbgrid":
		return refusal("the server is no member of a replica set: one member is enough (--replSet)")
	}
	return nil
}

// Close implements [fallback.Records].
func (s *store) Close() error { return nil }

// Load implements [fallback.Records]. It asks again until it has an answer, is refused, or ctx
// ends.
func (s *store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	for patience := tryFor; ; patience = min(2*patience, 8*tryFor) {
		try, cancel := context.WithTimeout(ctx, patience)
		look, err := s.read(try, keys)
		cancel()
		if err == nil || errors.Is(err, fallback.ErrRefused) {
			return look, err
		}
		select {
		case <-time.After(pauseFor):
		case <-ctx.Done():
			return fallback.Look{}, err
		}
	}
}

var errMarked = errors.New("mongodb: there is another mark")

// read reads once. Its finds are side by side; each has the mark, too.
func (s *store) read(ctx context.Context, keys []string) (look fallback.Look, err error) {
	parts := max(1, (len(keys)+maxReads-1)/maxReads)
	marks := make([]string, parts)
	look.Values = make([]fallback.Versioned, len(keys))
	if err := errors.Join(inParallel(parts, func(i int) (err error) {
		from, to := i*maxReads, min((i+1)*maxReads, len(keys))
		marks[i], err = s.find(ctx, keys[from:to], look.Values[from:to])
		return err
	})...); err != nil {
		return fallback.Look{}, s.explain(err)
	}
	for _, m := range marks {
		if m != marks[0] {
			return fallback.Look{}, errMarked
		}
	}
	if look.Server = marks[0]; look.Server != "" {
		return look, nil
	}
	_, err = s.records().InsertOne(ctx, document{ID: markID, Version: rand.Text()})
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return fallback.Look{}, s.explain(err)
	}
	return fallback.Look{}, errMarked
}

// find reads some records, and the mark after them.
func (s *store) find(ctx context.Context, keys []string, values []fallback.Versioned) (mark string, err error) {
	at := make(map[string]int, len(keys))
	ids := bson.A{markID}
	for i, k := range keys {
		ids = append(ids, recordID(k))
		at[recordID(k)] = i
	}
	cursor, err := s.records().Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetBatchSize(int32(len(ids)+1)))
	if err != nil {
		return "", err
	}
	var all []document
	if err := cursor.All(ctx, &all); err != nil {
		return "", err
	}
	for _, d := range all {
		if d.ID == markID {
			mark = d.Version
		} else if i, ok := at[d.ID]; ok {
			values[i] = fallback.Versioned{Version: d.Version, Value: d.Value}
		}
	}
	return mark, nil
}

// inParallel calls f for each of n indices.
func inParallel(n int, f func(i int) error) []error {
	errs := make([]error, n)
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	return errs
}

// Swap implements [fallback.Records]. Versions are those of one server only, so a change goes by
// its version. A record that is new says which server it was made for: at another one it begins
// Grace.
func (s *store) Swap(ctx context.Context, _ string, changes []fallback.Change) ([]bool, error) {
	if err := fallback.CheckSizes(changes, maxBytes); err != nil {
		return nil, err
	}
	done := make([]bool, len(changes))
	errs := inParallel(len(changes), func(i int) (err error) {
		done[i], err = s.swap(ctx, changes[i])
		return err
	})
	return fallback.Swapped(done, errs)
}

// swap writes one record. The driver may send it twice, which the server executes once.
func (s *store) swap(ctx context.Context, c fallback.Change) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, notSent(err)
	}
	id, version := recordID(c.Key), rand.Text()
	if c.Version == "" {
		_, err := s.records().InsertOne(ctx, document{id, version, c.Value})
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, s.explain(err)
	}
	r, err := s.records().UpdateOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "version", Value: c.Version}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: version}, {Key: "value", Value: c.Value}}}})
	return err == nil && r.MatchedCount == 1, s.explain(err)
}

// explain marks errors of calls that were not executed.
func (s *store) explain(err error) error {
	e := mongo.ServerError(nil)
	if !errors.As(err, &e) {
		if err != nil && strings.Contains(err.Error(), "AuthenticationFailed") {
			return refusal("the replica set does not let the client in: %w", denied(err))
		}
		return err
	}
	switch {
	case e.HasErrorCode(13): // Unauthorized
		return refusal("the client's user must have the actions find, insert and update of %s.%s: %w", s.database, s.collection, denied(err))
	case e.HasErrorCode(18): // AuthenticationFailed
		return refusal("the replica set does not let the client in: %w", denied(err))
	}
	return err
}
