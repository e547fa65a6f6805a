package history

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Records that Read accepts can be written, and are the same when they are read again; and nothing
// makes the steps of a history panic.
func FuzzRead(f *testing.F) {
	var lines bytes.Buffer
	put := WriteTo(&lines, func(err error) { f.Error(err) })
	for _, r := range []Record{
		{Process: "a", ID: 1, Client: 1, Op: Lock, Key: "k", Fence: 7, Call: 1, Return: 2},
		{Process: "a", ID: 2, Client: 1, Op: Seen, Key: "k", Hold: 1, Call: 3, Return: 4},
		{Process: "a", ID: 3, Client: 1, Op: Unlock, Key: "k", Hold: 1, Call: 5, Return: 6, Refused: true},
		{Process: "b", ID: 1, Op: TryLock, Key: "k", Call: 2, Return: time.Hour, Unknown: true},
		{Process: "a", ID: 4, Op: TryRLock, Key: "k", Fence: 8, Call: 7, Return: 8},
		{Process: "a", ID: 5, Op: Downgrade, Key: "k", Hold: 1, Fence: 8, Call: 9, Return: 9},
		{Process: "b", ID: 3, Op: TryAcquire, Key: "k", Permits: 2, Of: 3, Call: 2, Return: 3},
		{Process: "b", ID: 2, Op: Gone, Call: 7, Return: 7},
	} {
		put(r)
	}
	f.Add(lines.String())
	f.Add(lines.String() + `{"process":"a","id":4,"op":"lo`) // killed while it wrote
	f.Add(strings.Repeat(lines.String(), 2))
	f.Add(`{"process":"a","id":1,"op":"paused","call":9,"return":-9}` + "\n")
	f.Add("null\n")
	f.Fuzz(func(t *testing.T, text string) {
		records, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		var again bytes.Buffer
		put := WriteTo(&again, func(err error) { t.Error(err) })
		for _, r := range records {
			put(r)
		}
		got, err := Read(&again)
		if err != nil || !reflect.DeepEqual(got, records) {
			t.Errorf("%v\n%+v\n%+v", err, got, records)
		}
		_, _ = steps(records)
	})
}
