package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/apitest"
)

// FuzzTokens: a token file is read or refused. An error quotes no word that could be a token, and every token
// that is read is known afterwards.
func FuzzTokens(f *testing.F) {
	f.Add([]byte("\ufeff# comment\nadmin 0123456789abcdef0123456789abcdef\n\nviewer\tabcdefabcdefabcdefabcdefabcdefab\r\n"))
	f.Add([]byte("0123456789abcdef0123456789abcdef admin"))
	f.Add([]byte("admin 0123456789abcdef0123456789abcdef\nadmin 0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, err := ParseTokens(bytes.NewReader(text))
		for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
			line = strings.TrimSpace(line)
			for _, word := range strings.Fields(line) {
				if err != nil && len(word) >= tokenCharsMin && strings.Contains(err.Error(), word) {
					t.Errorf("%v quotes the word %q", err, word)
				}
			}
			if _, secret, ok := strings.Cut(line, " "); err == nil && ok && !strings.HasPrefix(line, "#") {
				if role, _ := tokens.find([]byte(strings.TrimSpace(secret))); role == 0 {
					t.Errorf("the token of %q is not known", line)
				}
			}
		}
		if err == nil {
			if role, _ := tokens.find(nil); role != 0 {
				t.Error("nothing is a token")
			}
		}
	})
}

// FuzzKeys: a key or a secret that was not signed here opens nothing, and a log is told no signature.
func FuzzKeys(f *testing.F) {
	k := newClaimKeys("run", "")
	const id = "g12-s3-a1"
	key, secret := k.key(id), k.sign(purposeSecret, id)
	f.Add(id, "."+strings.Repeat("A", macChars))
	f.Add("g12-s3-a01", "")
	f.Add("g9223372036854775808-s0-a0", "x")
	f.Add("g-1-s0-a0\x00", ".")
	f.Fuzz(func(t *testing.T, head, tail string) {
		for _, text := range []string{head + tail, head + key[len(id):] + tail, head + "." + secret, key + tail, head + key} {
			if got := k.rollout(text); got != "" && text != key && text != k.key(got) {
				t.Errorf("%q opens %q", text, got)
			}
			if k.check(head, text) == nil && text != k.sign(purposeSecret, head) {
				t.Errorf("%q is a secret of %q", text, head)
			}
		}
		if isClaimID(head) && strings.ContainsAny(head, "\x00.+ ") {
			t.Errorf("%q is an id", head)
		}
		if said := unsigned(head + " " + key + " " + tail); strings.Contains(said, key) {
			t.Errorf("a log is told %q", said)
		}
		_ = bearer(head)
	})
}

// The generator of wrong requests knows the message of every route that takes one: the server names the fields that it wants.
func TestMessages(t *testing.T) {
	s, port, url := openServer(t, nil)
	// No request comes to a port.
	receivers, senders := struct{ Receivers }{}, struct{ Senders }{}
	if err := s.Mount(Ports{Plane: newPlane(), Rollouts: port, Trainers: port, Meetings: port, Receivers: receivers, Senders: senders, Settings: port}); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.endpoints {
		if !strings.HasPrefix(e.pattern, "POST /api/") {
			continue
		}
		method, path, _ := strings.Cut(e.pattern, " ")
		for name, value := range map[string]string{"{id}": "g1-s0-a1", "{lease}": "1", "{name}": "n"} {
			path = strings.ReplaceAll(path, name, value)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader("[]"))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		message := apitest.Message(e.pattern)
		if message == nil {
			t.Errorf("%s: apitest.Message does not know its request", e.pattern)
			continue
		}
		if want := "with the fields " + strings.Join(fieldNames(reflect.New(message).Interface()), ", "); !strings.Contains(string(body), want+`"`) {
			t.Errorf("%s: %s, want %s", e.pattern, body, want)
		}
	}
}

// HEAD on a stream is answered and ends. Nothing is written to such a client, so that the server would never notice that it
// has left; its connection and its place among the streams were lost.
func TestHeadOfAStreamEnds(t *testing.T) {
	s, err := New(Options{Run: "r", StreamsMax: 1}, Ports{Plane: newPlane()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := httptest.NewRequest(http.MethodHead, "http://localhost/api/v1/stream", nil)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r) // it returns
		if w.Code != http.StatusOK || w.Body.Len() > 0 {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	}
}
