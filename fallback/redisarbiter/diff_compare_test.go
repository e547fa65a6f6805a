package redisarbiter_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/injure"
)

// differ compares the final states of both.
func differ[T any](what string, m, r T) string {
	if reflect.DeepEqual(m, r) {
		return ""
	}
	return fmt.Sprintf("%s in the end: Memory has\n\t%+v, Redis\n\t%+v", what, m, r)
}

// hear returns the messages that Redis published up to now, by session.
func (x *twins) hear(ctx context.Context) (map[string][]fallback.Message, error) {
	if err := x.client.Publish(ctx, "{ns:c}:", "end").Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	heard := make(map[string][]fallback.Message)
	for {
		m, err := x.heard.ReceiveMessage(ctx)
		if err != nil {
			return nil, err
		}
		session := strings.TrimPrefix(m.Channel, "{ns:c}:")
		if session == "" {
			return heard, nil
		}
		parsed, _ := redisarbiter.ParseMessage(m.Payload)
		heard[session] = append(heard[session], parsed)
	}
}

// messages compares the messages to each session.
func (x *twins) messages(ctx context.Context) (string, error) {
	heard, err := x.hear(ctx)
	if err != nil {
		return "", err
	}
	told := make(map[string][]fallback.Message)
	for session, tap := range x.taps {
		if all := tap(); len(all) > 0 {
			told[session] = all
		}
	}
	return differ("messages", told, heard), nil
}

// image is the state of a partition, as far as it is compared.
type image struct {
	Owner                     string
	Epoch, Seq, From, Revoked uint32
	Grace                     string
	Named, Floor              bool // of Changed: it names the Grace, or it is for the next epoch
	Rows                      map[string]fallback.Row
	Names                     map[string]string
	Queues                    map[string][]string
}

// ends is all that is compared of the end of a Grace: how long it lasts, roughly.
func (x *twins) ends(ms int64) string {
	switch left := time.Until(time.UnixMilli(ms)); {
	case redisarbiter.HasObserver(x.redis): // it is no time
		return fmt.Sprint(ms != 0)
	case ms == 0:
		return ""
	case left <= 0:
		return "over"
	case left > 3*time.Hour:
		return "much too late"
	default:
		return left.Round(30 * time.Minute).String()
	}
}

// promised is the part of a promise that is compared.
func promised(till int64) string {
	switch {
	case till == 0:
		return ""
	case time.Until(time.UnixMilli(till)) > time.Hour:
		return " is promised the key for much too long"
	}
	return " is promised the key"
}

// unread compares the stored state before anything else looks at it, by the server's clock.
func (x *twins) unread(ctx context.Context) (string, error) {
	if redisarbiter.HasObserver(x.redis) { // which ends a Grace when it looks
		return "", nil
	}
	var grace, server string
	lost := false
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		grace, server, lost = x.ends(s.GraceEnd), s.Server, s.Format == ""
	})
	f := x.client.HMGet(ctx, sessionsKey, "g", "i").Val()
	if len(f) == 2 && f[0] != nil && !lost {
		end, err := strconv.ParseInt(f[0].(string), 10, 64)
		if err != nil {
			return "", err
		}
		if d := differ("Grace and server of the sessions", fmt.Sprint(grace, server == "another"), fmt.Sprint(x.ends(end), f[1] == "another")); d != "" {
			return d, nil
		}
	}
	return x.images(ctx)
}

func (x *twins) partitions(ctx context.Context) (string, error) {
	looks := []move{(*twins).readsMany, (*twins).readsMost, reads}
	if x.looks++; x.looks%2 == 0 { // the first one alone sees the state after the moves
		looks[0], looks[1] = looks[1], looks[0]
	}
	for _, look := range looks {
		if d, err := look(x, ctx); d != "" || err != nil {
			return d, err
		}
	}
	return x.images(ctx)
}

func (x *twins) images(ctx context.Context) (string, error) {
	for p := range uint32(diffSettings.Partitions) {
		r, err := x.redisImage(ctx, p)
		if err != nil {
			return "", err
		}
		if d := differ(fmt.Sprint("partition ", p), x.memoryImage(p), r); d != "" {
			return d, nil
		}
	}
	return "", nil
}

func (x *twins) memoryImage(p uint32) image {
	m := x.peek(p)
	i := image{
		Owner: m.Owner, Epoch: m.Epoch, Seq: m.Seq, From: m.From, Revoked: m.Revoked, Grace: x.ends(m.GraceEnd),
		Named: m.GraceName() != "" && !redisarbiter.HasObserver(x.redis), Floor: m.Changed != 0 && m.GraceEnd == 0,
		Rows: maps.Clone(m.Rows), Names: make(map[string]string), Queues: make(map[string][]string),
	}
	if i.Rows == nil {
		i.Rows = make(map[string]fallback.Row)
	}
	for key, specs := range m.Names {
		i.Names[key] = strings.Join(specs, " ")
	}
	for key, q := range m.Queues {
		for _, w := range q {
			who := strings.TrimSuffix(fmt.Sprintf("%s %d %s", w.Session, w.Request, w.Spec), " ")
			i.Queues[key] = append(i.Queues[key], who+promised(w.Promised))
		}
	}
	return i
}

func (x *twins) redisImage(ctx context.Context, p uint32) (i image, err error) {
	i = image{Rows: make(map[string]fallback.Row), Names: make(map[string]string), Queues: make(map[string][]string)}
	changed, end := "", ""
	for field, text := range x.client.HGetAll(ctx, recordKey(p)).Val() {
		if key, names := strings.CutPrefix(field, "n:"); names {
			i.Names[key] = text
			continue
		}
		switch key, isRow := strings.CutPrefix(field, "r:"); {
		case isRow:
			if i.Rows[key], err = fallback.DecodeRow(text); err != nil {
				return i, err
			}
		case field == "m":
			var grace int64
			if _, err := fmt.Sscanf(text, "%d %d %d %d %d", &i.Epoch, &i.Seq, &grace, &i.From, &i.Revoked); err != nil {
				return i, fmt.Errorf("%q: %w", text, err)
			}
			i.Grace, end = x.ends(grace), fmt.Sprint(grace)
			i.Owner = text[strings.LastIndexByte(text, ' ')+1:]
		case field == "e":
			changed = text
		}
	}
	i.Named = changed != "" && changed == end && !redisarbiter.HasObserver(x.redis) // where no clock shortens a Grace
	i.Floor = changed != "" && end == "0"
	for _, key := range diffKeys {
		for _, z := range x.client.ZRangeWithScores(ctx, queueKey(p, key), 0, -1).Val() {
			i.Queues[key] = append(i.Queues[key], fmt.Sprint(z.Member, promised(int64(max(0, -z.Score)))))
		}
	}
	return i, nil
}

// sessions compares the tables.
func (x *twins) sessions(ctx context.Context) (string, error) {
	for _, look := range []move{asks("a", "z", 0), asks("b", "z", 0), asks("c", "z", 0), (*twins).list, renews("z")} {
		if d, err := look(x, ctx); d != "" || err != nil {
			return d, err
		}
	}
	var told, heard []string
	now := time.Now().UnixMilli()
	add := func(to []string, session string, expiry, ttl int64, terms, guardians, addr string) []string {
		expiry = min(expiry, now+ttl) // Redis does so when it looks at the entry
		return append(to, fmt.Sprintf("%s at %s, expired %t, terms %q, guardians %q", session, addr, expiry <= now, terms, guardians))
	}
	mark := strings.Replace(x.client.HGet(ctx, sessionsKey, "f").Val(), "holdfast/2 clock=observers", "holdfast/1", 1)
	mark = raised.ReplaceAllString(mark, " raised=some")
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		told, heard = append(told, raised.ReplaceAllString(s.Format, " raised=some")), append(heard, mark)
		for session, m := range s.Members {
			told = add(told, session, m.Expiry, m.TTL, m.Terms.Encode(), m.Guardians.Encode(), m.Info)
		}
	})
	injure.State(x.store, "ns", func(s *fallback.Sessions, _ []fallback.Partition) {
		if s.GraceEnd != 0 && s.Changed != 0 {
			told = append(told, fmt.Sprint("a change of server began this Grace: ", s.Changed == s.GraceEnd))
		}
		if r := s.Round; r.Name != "" {
			told = append(told, fmt.Sprint("round ", r.Name, " ", r.Spoken, r.Server == s.Name))
		}
	})
	for field, text := range x.client.HGetAll(ctx, sessionsKey).Val() {
		if f := strings.Fields(text); field == "r" && len(f) >= 3 {
			_, name, _ := strings.Cut(x.client.HGet(ctx, sessionsKey, "u").Val(), " ")
			heard = append(heard, fmt.Sprint("round ", f[0], " ", f[3:], f[1] == name))
		}
		if g := x.client.HGet(ctx, sessionsKey, "g").Val(); field == "e" && g != "0" {
			heard = append(heard, fmt.Sprint("a change of server began this Grace: ", text == g))
		}
		if session, ok := strings.CutPrefix(field, "s:"); ok {
			f := strings.SplitN(text, " ", 3)
			expiry, err := strconv.ParseInt(f[0], 10, 64)
			if err != nil || len(f) != 3 {
				return "", fmt.Errorf("session %s: %q", session, text)
			}
			life, guardians, _ := strings.Cut(f[1], ":")
			life, terms, ok := strings.Cut(life, ";")
			if ok {
				terms = ";" + terms
			}
			ttl, err := strconv.ParseInt(life, 10, 64)
			if err != nil {
				return "", fmt.Errorf("session %s: %q", session, text)
			}
			heard = add(heard, session, expiry, ttl, terms, guardians, f[2])
		}
	}
	slices.Sort(told)
	slices.Sort(heard)
	return differ("sessions", told, heard), nil
}
