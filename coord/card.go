package coord

import (
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// card is the record that a process publishes beside its session at the arbiter. All nodes
// authenticate to the arbiter, so they believe a card where they do not believe gossip.
type card struct {
	Name    string // Options.Name
	Node    string // name of this start of the process in the cluster
	Gossip  string // address of its gossip
	Peer    string // address of its peer port
	Service string // Cluster.Service
	Key     string // fingerprint of the key that its streams prove; empty with Cluster.PeerTLS

	// Takeover is Cluster.Takeover, 0 if the node is no guardian. Promises are for as long, so only
	// nodes with the same one guard each other.
	Takeover time.Duration

	Place   string // presence.Place, if processes there see this one end
	Host    string // name of the host
	PID     int    // of the process
	Answers bool   // the node answers questions: see question

	Keepalive time.Duration // Cluster.Keepalive, for observers
}

func (c card) encode() string {
	var text strings.Builder
	for _, f := range [...]struct{ name, value string }{ // sorted by name
		{"d", lasting(c.Takeover)}, {"g", c.Gossip}, {"h", c.Host}, {"k", c.Key}, {"ka", lasting(c.Keepalive)}, {"n", c.Node}, {"name", c.Name},
		{"o", c.Place}, {"p", c.Peer}, {"pid", c.pid()}, {"q", c.answers()}, {"s", c.Service},
	} {
		if f.value == "" {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('&')
		}
		text.WriteString(f.name + "=" + url.QueryEscape(f.value))
	}
	return text.String()
}

// decodeCard is the inverse of encode. Fields that it does not know are of a later version.
func decodeCard(text string) card {
	v, err := url.ParseQuery(text)
	if err != nil {
		return card{}
	}
	k := card{Name: v.Get("name"), Node: v.Get("n"), Gossip: v.Get("g"), Peer: v.Get("p"), Service: v.Get("s"), Key: v.Get("k")}
	if d, err := time.ParseDuration(v.Get("d")); err == nil {
		k.Takeover = d
	}
	if d, err := time.ParseDuration(v.Get("ka")); err == nil {
		k.Keepalive = d
	}
	k.Host, k.Answers, k.Place = v.Get("h"), v.Get("q") != "", v.Get("o")
	k.PID, _ = strconv.Atoi(v.Get("pid"))
	return k
}

// pid and answers return the texts of PID and Answers for encode.
func (c card) pid() string {
	if c.PID == 0 {
		return ""
	}
	return strconv.Itoa(c.PID)
}

func (c card) answers() string {
	if !c.Answers {
		return ""
	}
	return "1"
}

// lasting returns the text of a duration for encode.
func lasting(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// registration returns the data that the arbiter keeps of a session of this process.
func (c *Coordinator) registration() fallback.Registration {
	k := card{Name: c.opts.Name, Host: hostName(), PID: os.Getpid()}
	if x := c.cluster; x != nil {
		k.Answers, k.Keepalive = true, c.opts.Cluster.Keepalive
		k.Node, k.Gossip, k.Peer, k.Service = x.self.name, x.ring.Gossip(), x.self.told, c.opts.Cluster.Service
		if x.self.identity != nil {
			k.Key = x.self.identity.Fingerprint()
		}
		if _, ok := c.remote.ns.(fallback.Burier); ok {
			k.Takeover, k.Place = c.opts.takeover(), x.self.near.place
		}
	}
	return fallback.Registration{TTL: c.opts.SessionTTL, Info: c.sessions.text(k)}
}

// told is a card, and its text.
type told struct {
	card card
	text string
}

// text returns the text of a card, which is the same for each renewal of most processes.
func (x *sessions) text(k card) string {
	if last := x.told.Load(); last != nil && last.card == k {
		return last.text
	}
	next := &told{k, k.encode()}
	x.told.Store(next)
	return next.text
}
