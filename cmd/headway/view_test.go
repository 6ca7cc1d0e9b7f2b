package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/app/pages"
	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/dashboard"
	"github.com/headway-rl/headway/loop/trace"
)

// recorded makes a small trace by simulation.
func recorded(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.ndjson")
	var out, complaints strings.Builder
	if code := Main([]string{"simulate", "--accept-unsettled", "--trace", path, "--set", "modelled.train.utilization=1.2", "--set", "steps.warmup=20", "--set", "steps.measured=60"}, strings.NewReader(""), &out, &complaints); code != 0 {
		t.Fatal(complaints.String())
	}
	return path
}

// shownOf reads a trace to what is its end and returns the model.
func shownOf(t *testing.T, path string) *dashboard.Model {
	t.Helper()
	shown, err := compare.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	shown.Follow(t.Context())
	return shown.Model()
}

// A recorded run shows the figures that its events have; one whose trace is damaged, what comes before that and why.
func TestViewOfATrace(t *testing.T) {
	path := recorded(t)
	s := shownOf(t, path).Summary()
	if s.Version != 80 || !s.Ended || !s.Balanced || s.Problem != "" || s.Reading != nil || s.Staleness.Mean <= 0 {
		t.Errorf("%+v", s)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.ndjson")
	half := len(text) / 2
	text[half] ^= 1
	if err := os.WriteFile(damaged, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if s := shownOf(t, damaged).Summary(); !strings.Contains(s.Problem, "line") || s.Version == 0 || s.Version >= 80 {
		t.Errorf("a damaged trace: version %d, problem %q", s.Version, s.Problem)
	}
}

// A trace that is half written is shown as far as it goes and followed, and ends when no one looks any more.
func TestViewFollowsATrace(t *testing.T) {
	text, err := os.ReadFile(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	frames, err := trace.NewFrames(&packed)
	if err == nil {
		_, err = frames.Write(text)
	}
	if err = errors.Join(err, frames.Close()); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"plain": text, "packed": packed.Bytes()} {
		t.Run(name, func(t *testing.T) { viewFollows(t, text) })
	}
}

func viewFollows(t *testing.T, text []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "growing")
	half := len(text) / 2 // in the middle of a line, or of a block
	if err := os.WriteFile(path, text[:half], 0o644); err != nil {
		t.Fatal(err)
	}
	shown, err := compare.Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := make(chan struct{})
	go func() {
		defer close(read)
		shown.Follow(ctx)
	}()
	changed := shown.Model().Changed()
	for shown.Model().Summary().Version == 0 {
		<-changed
		changed = shown.Model().Changed()
	}
	if s := shown.Model().Summary(); s.Ended {
		t.Errorf("half a trace: %+v", s)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(text[half:])
		file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	<-read
	if s := shown.Model().Summary(); !s.Ended || s.Version != 80 {
		t.Errorf("the whole trace: version %d, ended %v, %s", s.Version, s.Ended, s.Problem)
	}
}

// What cannot be shown is refused with what to do.
func TestViewRefuses(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.ndjson")
	text, err := os.ReadFile(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(strings.Replace(string(text), `"format":2`, `"format":9`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(dir, "run.yaml") // a run may be named so
	if err := os.Mkdir(named, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"view", named}, "is not a run directory"},
		{[]string{"view", filepath.Join(dir, "none")}, "does not exist"},
		{[]string{"view", other}, "trace"},
		{[]string{"view", other, "--set", "a=b"}, "--set changes a document"},
	} {
		var out, complaints strings.Builder
		if code := Main(c.arguments, strings.NewReader(""), &out, &complaints); code == 0 || !strings.Contains(complaints.String(), c.want) {
			t.Errorf("%v: %d %s", c.arguments, code, &complaints)
		}
	}
	for address, fine := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "0.0.0.0:7070": false, ":7070": false, "7070": false} {
		if err := pages.CheckListen(address); (err == nil) != fine {
			t.Errorf("--listen %s: %v", address, err)
		}
	}
}

// The token of a run's pages stays the same while its directory does, and its owner alone can read it.
func TestTokenOfPages(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, pages.TokenFile)
	if err := os.WriteFile(path, []byte("short\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	token := pages.KeptToken(dir)
	if len(token) != 26 || token == pages.KeptToken(t.TempDir()) {
		t.Errorf("%q is no token of its own", token)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if pages.KeptToken(dir) != token || pages.Token(dir) != token {
		t.Error("the token was not kept")
	}
	if once, again := pages.Token(path), pages.Token(path); once == token || once == again {
		t.Error("a path that is no directory has a token of its own")
	}
}

// Pages are served to this machine under its own names, and to no page elsewhere; data to those with the token alone. A
// port in use is no error.
func TestServePages(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	listener, err := pages.FirstFree(taken.Addr().String())
	if err != nil || listener.Addr().String() == taken.Addr().String() {
		t.Fatalf("%v, %v", listener, err)
	}
	model := shownOf(t, recorded(t))
	token := pages.Token(t.TempDir())
	header := "Bearer " + token
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- pages.Serve(ctx, listener, model.Handler(), token) }()
	url := "http://" + listener.Addr().String()
	ask := func(host, path string) (int, string) {
		r, err := http.NewRequest("GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.StatusCode, string(body)
	}
	for _, path := range []string{"/", "/app.js", "/api/v1/view/info", "/api/v1/view/frontier", "/api/v1/view/schedules"} {
		if code, body := ask("", path); code != 200 {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	if code, _ := ask("evil.example", "/api/v1/view/info"); code != http.StatusMisdirectedRequest {
		t.Errorf("under a foreign name: %d", code)
	}
	_, body := ask("", "/api/v1/view/frontier?concurrency=512")
	var f dashboard.Frontier
	if err := json.Unmarshal([]byte(body), &f); err != nil || f.Inputs["concurrency"] != 512 || f.Here == nil || len(f.Curve) < 40 {
		t.Errorf("%v %.300s", err, body)
	}
	for _, header = range []string{"", "Bearer ", "Bearer " + token[1:], "Bearer " + token + "x", "Basic " + token, token, "Bearer " + pages.Token(t.TempDir())} {
		for _, path := range []string{"/api/v1/view/info", "/api/v1/view/groups", "/api/v1/view/groups/0", "/api/v1/view/tile?level=0", "/api/v1/view/stream", "/api/v1/view/info?token=" + token} {
			if code, body := ask("", path); code != http.StatusUnauthorized || strings.Contains(body, token) {
				t.Errorf("%s with %q: %d %.200s", path, header, code, body)
			}
		}
		if code, _ := ask("", "/"); code != 200 {
			t.Errorf("the page with %q: %d", header, code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A browser opens where a person asks for one at a terminal, and its page is taken away with the view.
func TestViewOpensABrowser(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for _, test := range []struct {
		view     viewCmd
		terminal bool
		want     int
	}{{viewCmd{}, true, 1}, {viewCmd{NoOpen: true}, true, 0}, {viewCmd{}, false, 0}, {viewCmd{Output: command.Output{JSON: true}}, true, 0}} {
		a := &app.Process{Stderr: io.Discard, IsTerminal: func(any) bool { return test.terminal }, Getenv: func(name string) string {
			return map[string]string{"BROWSER": "true"}[name]
		}}
		remove := test.view.open(a, "http://127.0.0.1:7070/#/?token=T")
		if made, _ := filepath.Glob(filepath.Join(temporary, "*", "open.html")); len(made) != test.want {
			t.Errorf("%+v, terminal %v: %d pages, want %d", test.view, test.terminal, len(made), test.want)
		}
		remove()
		if left, _ := filepath.Glob(filepath.Join(temporary, "*")); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	}
}

// The end of its terminal ends a view in order: nothing of it stays in the folder of temporary files.
func TestViewEndsWithItsTerminal(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // which would end this process, or be ignored by it
	defer signal.Stop(heard)
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- Main([]string{"view", document(t, simulated), "--set", "steps.measured=150", "--listen", "127.0.0.1:0"}, strings.NewReader(""), in, io.Discard)
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "is shown at") {
		t.Fatalf("%q, %v", line, err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("code %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on without its terminal")
	}
	if left := entries(t, temporary); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}
