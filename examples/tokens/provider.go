package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

const (
	life      = time.Second           // of an access token; RFC 6749 knows whole seconds only
	think     = 20 * time.Millisecond // between the provider's commit and its answer
	graceTime = 20 * time.Second      // with -grace: for one more use of a refresh token
	tooEarly  = life / 2              // a refresh of an access token younger than this was one too many
	header    = "X-Worker"            // tells the provider which process asks
	tokenPath = "/token"              // RFC 6749, section 6
	apiPath   = "/api"                // takes access tokens
)

// A provider is an authorization server and its API. As those of banks and accountants do, it gives
// out a new refresh token with each access token. It takes a token that is used a second time for
// stolen: it revokes the family, which is everything that was issued since the login.
type provider struct {
	grace   bool
	rotated func(worker, n int) (lost bool) // called when a refresh was committed, before it is answered: the client may have gone

	mu       sync.Mutex         // protects the fields below
	byToken  map[string]*family // by refresh token, used ones too
	byAccess map[string]access
	known    map[string]bool // accounts
	quota    map[string]int  // of each account, how many tokens are still to be replaced
	due      map[string]bool // accounts with a refresh that was committed and not answered
	done     chan struct{}   // closed when there is nothing in quota and due
	finished bool            // done is closed
	count    counts
}

// counts has the provider's observations.
type counts struct {
	Expiries    int // of access tokens that were replaced, or are about to be
	Requests    int // for a refresh
	Refreshes   int // that were granted
	Early       int // granted too early: the access token was not near its end
	Reuses      int // of refresh tokens that had been used
	Replays     int // reuses that were forgiven, with -grace
	Revocations int // families that this has cost
	Logins      int
}

type family struct {
	account  string
	current  string // the refresh token that is good
	previous string
	spent    time.Time // when previous was
	replayed bool      // previous was used once more
	revoked  bool
}

type access struct {
	*family
	expires time.Time
}

func newProvider(grace bool, accounts []string, expiries int) *provider {
	p := &provider{
		grace: grace, rotated: func(int, int) bool { return false },
		byToken: make(map[string]*family), byAccess: make(map[string]access),
		known: make(map[string]bool), quota: make(map[string]int), due: make(map[string]bool), done: make(chan struct{}),
	}
	for i, a := range accounts {
		// As even as can be: an expiry of every account by turns.
		p.quota[a] = expiries/len(accounts) + min(1, max(0, expiries%len(accounts)-i))
	}
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case tokenPath:
		p.refresh(w, r)
	case apiPath:
		if !p.valid(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	case "/login":
		answer(w, p.login(r.FormValue("account")))
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, t *oauth2.Token) {
	w.Header().Set("Content-Type", "application/json")
	if t == nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": t.AccessToken, "token_type": "Bearer", "refresh_token": t.RefreshToken, "expires_in": int(life.Seconds()),
	})
}

func (p *provider) refresh(w http.ResponseWriter, r *http.Request) {
	refresh := r.FormValue("refresh_token")
	t, n := p.rotate(refresh, time.Now())
	if t != nil {
		worker, _ := strconv.Atoi(r.Header.Get(header))
		if !p.rotated(worker, n) {
			p.answered(refresh)
		}
	}
	time.Sleep(think)
	answer(w, t)
}

// rotate exchanges a refresh token. It returns nil if that is not to be had, and how many it has
// granted.
func (p *provider) rotate(refresh string, now time.Time) (*oauth2.Token, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Requests++
	f := p.byToken[refresh]
	switch {
	case f == nil || f.revoked:
		return nil, 0
	case refresh == f.current:
		if now.Sub(f.spent) < tooEarly {
			p.count.Early++
		}
		f.previous, f.spent, f.replayed = refresh, now, false
	case refresh == f.previous && p.grace && !f.replayed && now.Sub(f.spent) < graceTime:
		p.count.Reuses++
		p.count.Replays++
		f.replayed = true
	default:
		p.count.Reuses++
		p.count.Revocations++
		f.revoked = true
		return nil, 0
	}
	p.count.Refreshes++
	p.due[f.account] = true
	return p.issue(f, now), p.count.Refreshes
}

// answered counts a token that a client has got for the given one. If the answer was lost, the
// token is counted when the parent has logged in instead, or a client has asked again.
func (p *provider) answered(refresh string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaced(p.byToken[refresh].account)
}

// replaced counts an access token that had come to its end. p.mu is held.
func (p *provider) replaced(account string) {
	delete(p.due, account)
	p.count.Expiries++
	if p.quota[account]--; p.quota[account] <= 0 { // it has done its part
		delete(p.quota, account)
	}
	if len(p.quota)+len(p.due) == 0 && !p.finished {
		p.finished = true
		close(p.done)
	}
}

// issue is called with p.mu held.
func (p *provider) issue(f *family, now time.Time) *oauth2.Token {
	t := &oauth2.Token{AccessToken: rand.Text(), TokenType: "Bearer", RefreshToken: rand.Text(), Expiry: now.Add(life)}
	f.current = t.RefreshToken
	p.byToken[t.RefreshToken] = f
	p.byAccess[t.AccessToken] = access{f, t.Expiry}
	return t
}

// login begins a new family.
func (p *provider) login(account string) *oauth2.Token {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Logins++
	if p.known[account] {
		p.replaced(account)
	}
	p.known[account] = true
	return p.issue(&family{account: account}, time.Now())
}

func (p *provider) valid(token string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.byAccess[token]
	return ok && !a.revoked && time.Now().Before(a.expires)
}

func (p *provider) counts() counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.count
	c.Expiries += len(p.due)
	return c
}
