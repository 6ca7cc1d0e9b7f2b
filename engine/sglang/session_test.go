package sglang

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// sessions is a server that takes tensors within a session alone, in the words of SGLang 0.5.23.
type sessions struct {
	open  bool
	fails string // a path that is refused
	asked []string
}

func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, strings.TrimSpace(r.URL.Path+" "+string(body)))
	message := ""
	switch {
	case r.URL.Path == s.fails:
		message = "it fails"
	case r.URL.Path == pathBegin && s.open:
		message = "a weight-update session is already open; call end_weight_update() first"
	case r.URL.Path == pathEnd && !s.open:
		message = "no weight-update session is open; call begin_weight_update() first"
	case r.URL.Path == pathDistributed && !s.open:
		message = "update_weights_from_distributed must run between begin_weight_update() and end_weight_update()"
	case r.URL.Path == pathBegin, r.URL.Path == pathEnd:
		s.open = r.URL.Path == pathBegin
	}
	if message != "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"success": message == "", "message": message})
}

// TestSessions: tensors come within a session, whatever a process before left open, and a refusal closes it.
func TestSessions(t *testing.T) {
	update := upstream.Update{Label: "v7", Group: aGroup, Tensors: []upstream.Tensor{
		{Name: "a", DType: "int8", Shape: []int64{bucketBytes}}, {Name: "b", DType: "int8", Shape: []int64{1}},
	}}
	for name, c := range map[string]struct {
		open  bool
		fails string
		says  string
		want  []string
	}{
		"new":             {want: []string{pathBegin, pathDistributed, pathDistributed, pathEnd}},
		"left open":       {open: true, want: []string{pathBegin, pathEnd, pathBegin, pathDistributed, pathDistributed, pathEnd}},
		"a refused part":  {fails: pathDistributed, says: "it fails", want: []string{pathBegin, pathDistributed, pathEnd}},
		"a refused begin": {fails: pathBegin, says: "it fails", want: []string{pathBegin}},
		"a refused end":   {fails: pathEnd, says: "it fails", want: []string{pathBegin, pathDistributed, pathDistributed, pathEnd}},
	} {
		t.Run(name, func(t *testing.T) {
			server := &sessions{open: c.open, fails: c.fails}
			front := httptest.NewServer(server)
			defer front.Close()
			s, err := upstream.NewServer(upstream.ServerOptions{URL: front.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			err = New().Update(t.Context(), s, update, &upstream.Capabilities{Private: &found{session: true}})
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
			var paths []string
			for _, text := range server.asked {
				path, body, _ := strings.Cut(text, " ")
				paths = append(paths, path)
				if want := map[string]string{pathBegin: `{"selector":"all"}`, pathEnd: `{}`}[path]; want != "" && body != want {
					t.Errorf("%s says %s, want %s", path, body, want)
				}
			}
			if !slices.Equal(paths, c.want) {
				t.Errorf("asked %q\nwant  %q", paths, c.want)
			}
			if server.open && c.fails != pathEnd {
				t.Error("the session is left open")
			}
		})
	}
}

// TestSessionsAreFound: whether a server has sessions is read off its paths, so that older releases go without.
func TestSessionsAreFound(t *testing.T) {
	for _, has := range []bool{false, true} {
		s, _ := asking(t, map[string]string{"/server_info": "{}", "/workers": "404 none"})
		paths := map[string]bool{pathInitGroup: true, pathDestroyGroup: true, pathDistributed: true, pathBegin: has, pathEnd: has}
		p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{Paths: paths}}
		if err := p.controls(); err != nil {
			t.Fatal(err)
		}
		if p.found.session != has {
			t.Errorf("paths %v: sessions found: %t", has, p.found.session)
		}
	}
}
