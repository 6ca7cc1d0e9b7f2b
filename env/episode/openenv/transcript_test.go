package openenv

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

var record = flag.Bool("record", false, "write testdata/*.transcript anew from real servers (HEADWAY_ENVIRONMENTS_PYTHON)")

// Lines of a transcript: a path and what GET answered, what was sent on the one WebSocket ("> "), and
// what came back ("< "). "# " is a comment.

// proxy records what passes between a world and a real server.
func proxy(t *testing.T, upstream, name string) string {
	var mu sync.Mutex
	lines := []string{"# Recorded of openenv-core 0.3.0 and testdata/server.py by go test -record."}
	write := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf(format, args...))
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			pass(t, upstream, w, r, write)
			return
		}
		response, err := http.Get(upstream + r.URL.Path)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		write("%s %s", r.URL.Path, body)
		_, _ = w.Write(body)
	}))
	t.Cleanup(func() {
		front.Close()
		if err := os.WriteFile(filepath.Join("testdata", name+".transcript"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	})
	return front.URL
}

// pass hands the messages of a WebSocket on, both ways.
func pass(t *testing.T, upstream string, w http.ResponseWriter, r *http.Request, write func(string, ...any)) {
	client, err := websocket.Accept(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer client.CloseNow()
	server, _, err := websocket.Dial(t.Context(), upstream+"/ws", nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.CloseNow()
	for {
		_, text, err := client.Read(t.Context())
		if err != nil {
			return
		}
		write("> %s", text)
		if err := server.Write(t.Context(), websocket.MessageText, text); err != nil {
			return
		}
		_, text, err = server.Read(t.Context())
		if err != nil {
			return // it was told to close
		}
		write("< %s", text)
		if err := client.Write(t.Context(), websocket.MessageText, text); err != nil {
			return
		}
	}
}

// replay is a server that says what was recorded to whoever asks what was asked then.
func replay(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join("testdata", name+".transcript"))
	if err != nil {
		t.Fatal(err)
	}
	gets := map[string]string{}
	var turns []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch path, body, _ := strings.Cut(line, " "); {
		case strings.HasPrefix(path, "/"):
			gets[path] = body
		case path != "#":
			turns = append(turns, line)
		}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ws" {
			_, _ = io.WriteString(w, gets[r.URL.Path])
			return
		}
		client, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer client.CloseNow()
		for i := 0; i < len(turns); i++ {
			_, text, err := client.Read(t.Context())
			if err != nil {
				t.Errorf("no message, recorded is %s", turns[i])
				return
			}
			if recorded := strings.TrimPrefix(turns[i], "> "); !sameJSON([]byte(recorded), text) {
				t.Errorf("%s was sent, recorded is %s", text, recorded)
			}
			if i++; i == len(turns) {
				_ = client.Close(websocket.StatusNormalClosure, "") // close has no answer
				return
			}
			_ = client.Write(t.Context(), websocket.MessageText, bytes.TrimPrefix([]byte(turns[i]), []byte("< ")))
		}
	}))
	t.Cleanup(front.Close)
	return front.URL
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// both plays against what was recorded, and against the real server where there is one.
func both(t *testing.T, kind string, play func(t *testing.T, url string)) {
	t.Run("recorded", func(t *testing.T) {
		if *record {
			t.Skip("it is being recorded")
		}
		play(t, replay(t, kind))
	})
	t.Run("real", func(t *testing.T) {
		url := server(t, kind)
		if *record {
			url = proxy(t, url, kind)
		}
		play(t, url)
	})
}
