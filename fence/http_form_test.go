package fence_test

import (
	"bytes"
	"errors"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
)

// The server removes the files of a form that a handler inside of Require has parsed.
func TestRequire_FilesOfFormsAreRemoved(t *testing.T) {
	path := ""
	s := httptest.NewServer(fence.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["f"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if file, ok := f.(*os.File); ok {
			path = file.Name()
		}
	})))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("f", "f")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(make([]byte, 20_000))
	form.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, &body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Header.Set(fence.Header, "7")
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	s.Close() // when the request is over
	if _, err := os.Stat(path); path == "" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file %q is left: %v", path, err)
	}
}
