package main

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Doctor says that all partitions have a living owner only where they have.
func TestDoctor_Partitions(t *testing.T) {
	owned, orphan := coord.PartitionInfo{Owner: &coord.Process{Name: "anna"}}, coord.PartitionInfo{Owner: &coord.Process{Session: "ended"}}
	for name, x := range map[string]struct {
		second coord.PartitionInfo
		want   []string
	}{
		"all is well":           {owned, []string{"ok partitions"}},
		"without an owner":      {coord.PartitionInfo{}, []string{"warn partitions"}},
		"Grace":                 {coord.PartitionInfo{Owner: owned.Owner, Grace: time.Second}, []string{"warn Grace", "ok partitions"}},
		"Grace and no owner":    {coord.PartitionInfo{Grace: time.Second}, []string{"warn Grace"}},
		"one that is not read":  {coord.PartitionInfo{Error: "timeout"}, []string{"fail partitions"}},
		"the owner has crashed": {orphan, []string{"warn partitions"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{}
			d.owners([]coord.PartitionInfo{owned, x.second}, 2)
			var got []string
			for _, f := range d.all {
				got = append(got, f.Level+" "+f.What)
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("%v, want %v", got, x.want)
			}
		})
	}
}
