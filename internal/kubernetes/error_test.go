package kubernetes

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The kind of an error is what whoever asks acts on.
func TestKinds(t *testing.T) {
	for name, test := range map[string]struct {
		code int
		text string
		kind Kind
	}{
		"gone":      {404, `{"reason":"NotFound","message":"pods \"x\" not found"}`, NotFound},
		"no right":  {403, `{"reason":"Forbidden","message":"cannot patch resource"}`, Denied},
		"no token":  {401, `{"reason":"Unauthorized","message":"Unauthorized"}`, Denied},
		"no room":   {403, `{"reason":"Forbidden","message":"exceeded quota: compute"}`, Quota},
		"too fast":  {429, `{"reason":"TooManyRequests","message":"slow down"}`, Quota},
		"conflict":  {409, `{"reason":"Conflict","message":"the object has been modified"}`, Conflict},
		"malformed": {422, `{"reason":"Invalid","message":"spec.replicas: Invalid value"}`, Invalid},
		"broken":    {500, `etcdserver: leader changed`, Down},
		"a page":    {200, `<html>`, Garbled},
		"a teapot":  {418, `short and stout`, Garbled},
		"half read": {200, "", Down},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name == "half read" {
				w.Header().Set("Content-Length", "10")
			}
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, test.text)
		}))
		a, err := New(Cluster{URL: server.URL + "/"})
		if err != nil {
			t.Fatal(err)
		}
		var into any
		err = a.Do(t.Context(), Request{Method: http.MethodGet, Path: "/api"}, &into)
		failure, is := errors.AsType[*Error](err)
		if !is || failure.Kind != test.kind {
			t.Errorf("%s: %v, expected kind %q", name, err, test.kind)
		}
		server.Close()
	}
}

// A request says who asks and what kind its body is.
func TestRequests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPatch || r.URL.RequestURI() != "/apis/apps?limit=1" || r.Header.Get("Content-Type") != MergePatch || string(text) != `{"spec":{"replicas":2}}` {
			t.Errorf("%s %s %s %s", r.Method, r.URL, r.Header, text)
		}
		_, _ = io.WriteString(w, `{"status":"done"}`)
	}))
	defer server.Close()
	a, err := New(Cluster{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Status string }
	patch := map[string]any{"spec": map[string]int{"replicas": 2}}
	err = a.Do(t.Context(), Request{Method: http.MethodPatch, Path: "/apis/apps", Query: map[string]string{"limit": "1", "continue": ""}, Body: patch, Type: MergePatch}, &answer)
	if err != nil || answer.Status != "done" {
		t.Errorf("%+v, %v", answer, err)
	}
	a.tokenFile = t.TempDir() + "/token"
	err = a.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}, nil)
	if failure, is := errors.AsType[*Error](err); !is || failure.Kind != Denied || !strings.Contains(err.Error(), "token") {
		t.Errorf("a token that cannot be read: %v", err)
	}
}
