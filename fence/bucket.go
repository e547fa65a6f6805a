package fence

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast/coord"
)

// A Bucket is [Objects] over HTTP: a store with ETags that heeds If-Match and If-None-Match in PUT,
// as S3 does. An object begins with its token, in a line of its own: so an ETag that is a hash of
// the content differs for each holder. Programs that read objects by themselves skip that line. Its
// methods are safe for concurrent use.
type Bucket struct {
	// URL is the beginning of the objects' URLs, such as
	// "https://bucket.s3.eu-west-1.amazonaws.com/". It must be set. Names are appended as they are:
	// escape the special characters of URLs ([url.PathEscape]), or "a?1" and "a?2" are one object.
	URL string

	// Client sends the requests. Its Transport signs them, if the store wants that. Nil:
	// [http.DefaultClient].
	Client *http.Client
}

var _ Objects = Bucket{}

// Get implements [Objects].
func (b Bucket) Get(ctx context.Context, name string) (data []byte, token coord.Fence, version string, err error) {
	resp, err := b.send(ctx, http.MethodGet, name, nil, "", "")
	if err != nil {
		return nil, 0, "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil, 0, "", nil
	case http.StatusOK:
	default:
		return nil, 0, "", unexpected(name, resp)
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0, "", fmt.Errorf("fence: object %q: %w", name, err)
	}
	if version = resp.Header.Get("ETag"); version == "" || strings.HasPrefix(version, "W/") {
		return nil, 0, "", fmt.Errorf("fence: object %q has the ETag %q: the store must have strong ones", name, version)
	}
	line, data, ok := bytes.Cut(content, []byte("\n"))
	if !ok || token.UnmarshalText(line) != nil {
		return nil, 0, "", fmt.Errorf("fence: object %q does not begin with a token: it was not written by Update", name)
	}
	return data, token, version, nil
}

// Put implements [Objects].
func (b Bucket) Put(ctx context.Context, name string, data []byte, token coord.Fence, version string) error {
	header, value := "If-Match", version
	if version == "" {
		header, value = "If-None-Match", "*"
	}
	resp, err := b.send(ctx, http.MethodPut, name, append([]byte(token.String()+"\n"), data...), header, value)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return nil
	case http.StatusPreconditionFailed, http.StatusConflict: // S3: 409 beside another PUT
		return ErrChanged
	case http.StatusNotFound:
		if version != "" { // it was deleted
			return ErrChanged
		}
		return fmt.Errorf("fence: object %q cannot be put to %s: %s", name, b.place(name), resp.Status)
	}
	return unexpected(name, resp)
}

// unexpected is the error of an answer that says nothing of the object. One that redirects is that
// of another region of S3, or of a server that wants https.
func unexpected(name string, resp *http.Response) error {
	if resp.StatusCode/100 != 3 {
		return fmt.Errorf("fence: object %q: %s", name, resp.Status)
	}
	where := "elsewhere"
	if region := resp.Header.Get("X-Amz-Bucket-Region"); region != "" {
		where = fmt.Sprintf("in the region %q", region)
	} else if u, err := resp.Location(); err == nil {
		where = "at " + (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	return fmt.Errorf("fence: object %q: %s: the bucket is %s: set Bucket.URL to its address there", name, resp.Status, where)
}

// place returns the object's URL for errors: without the parts that may be secret. The URL that a
// Client has sent may have a signature.
func (b Bucket) place(name string) string {
	u, err := url.Parse(b.URL + name)
	if err != nil {
		return "Bucket.URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func (b Bucket) send(ctx context.Context, method, name string, body []byte, header, value string) (*http.Response, error) {
	if b.URL == "" {
		return nil, fmt.Errorf("fence: Bucket.URL is empty: set the URL that the names of objects are appended to")
	}
	r, err := http.NewRequestWithContext(ctx, method, b.URL+name, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("fence: Bucket: %w", err)
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	client := *cmp.Or(b.Client, http.DefaultClient)
	check := client.CheckRedirect
	client.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		switch {
		case to.Method != method: // by 301 a PUT becomes a GET, which is answered, and writes nothing
			return http.ErrUseLastResponse
		case check != nil:
			return check(to, via)
		case len(via) >= 10: // as package http
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
	return client.Do(r)
}
