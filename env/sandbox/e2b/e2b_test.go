package e2b

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/shell"
)

// service is a fake of E2B's API and of the envd of all its sandboxes, by spec/openapi.yml and
// process.proto. It runs nothing: what a script says is up to the test.
type service struct {
	t      testing.TB
	mu     sync.Mutex
	boxes  map[string]made
	asked  []map[string]any // bodies of POST /sandboxes
	lives  chan int         // timeouts that were set anew
	files  map[string]string
	says   func(script string) []string // the envelopes' messages, the last the end of the stream
	status func(r *http.Request) int    // of an answer in the service's place; 0 for none
	hangs  chan struct{}                // closed to end scripts for which says returns nil
	silent bool                         // envd answers nothing
}

func newFake(t testing.TB) *service {
	s := &service{t: t, boxes: map[string]made{}, lives: make(chan int, 100), files: map[string]string{}, hangs: make(chan struct{})}
	s.says = func(string) []string { return ended(0, "exit status 0", "", "") }
	return s
}

func newService(t testing.TB) (*service, *Driver) {
	s := newFake(t)
	front := httptest.NewServer(s)
	t.Cleanup(front.Close)
	return s, newDriver(t, front.URL)
}

func newDriver(t testing.TB, url string) *Driver {
	t.Helper()
	d, err := New(Options{URL: url, Key: "the key", Envd: url + "/envd/{id}/{domain}"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pipes is a listener whose connections are in memory, so that they have a bubble's clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// inMemory is the service under a bubble's clock, which a busy machine does not stop.
func inMemory(t *testing.T) (*service, *Driver) {
	s, listener := newFake(t), make(pipes)
	front := &http.Server{Handler: s}
	go func() { _ = front.Serve(listener) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		listener <- theirs
		return ours, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = front.Close()
	})
	d := newDriver(t, "http://pipe")
	d.client = &http.Client{Transport: transport}
	return s, d
}

// ended are the messages of a command with its output.
func ended(code int, status, stdout, stderr string) []string {
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return []string{
		`{"event":{"start":{"pid":7}}}`, `{"event":{"keepalive":{}}}`,
		`{"event":{"data":{"stdout":"` + b64(stdout) + `"}}}`, `{"event":{"data":{"stderr":"` + b64(stderr) + `"}}}`,
		fmt.Sprintf(`{"event":{"end":{"exitCode":%d,"exited":%t,"status":%q}}}`, code, code >= 0, status), `{}`,
	}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.status != nil {
		if status := s.status(r); status != 0 {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"code":0,"message":"as the test has it"}`)
			return
		}
	}
	if strings.HasPrefix(r.URL.Path, "/envd/") {
		s.envd(w, r)
		return
	}
	if r.Header.Get("X-API-Key") != "the key" {
		s.t.Errorf("%s %s without the key", r.Method, r.URL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPost && len(parts) == 1:
		s.create(w, r)
	case r.Method == http.MethodPost && len(parts) == 3 && parts[2] == "timeout":
		var body struct{ Timeout int }
		_ = json.NewDecoder(r.Body).Decode(&body)
		s.lives <- body.Timeout
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		s.list(w, r)
	case r.Method == http.MethodDelete:
		if _, there := s.boxes[parts[1]]; !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		delete(s.boxes, parts[1])
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &body)
	s.asked = append(s.asked, body)
	var m made
	_ = json.Unmarshal(text, &m)
	m.ID, m.Token, m.Domain = fmt.Sprintf("sbx%d", len(s.asked)), "the token", "example"
	s.boxes[m.ID] = m
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"sandboxID": m.ID, "envdAccessToken": m.Token, "domain": m.Domain, "templateID": "base", "clientID": "c"})
}

// list hands out one sandbox a page.
func (s *service) list(w http.ResponseWriter, r *http.Request) {
	name, value, _ := strings.Cut(r.URL.Query().Get("metadata"), "=")
	var found []any
	after := r.URL.Query().Get("nextToken")
	for i := range s.asked {
		m, there := s.boxes[fmt.Sprintf("sbx%d", i+1)]
		if !there || m.Metadata[name] != value || m.ID <= after {
			continue
		}
		if len(found) == 1 {
			w.Header().Set("X-Next-Token", found[0].(map[string]any)["sandboxID"].(string))
			break
		}
		found = append(found, map[string]any{"sandboxID": m.ID, "metadata": m.Metadata})
	}
	_ = json.NewEncoder(w).Encode(found)
}

func (s *service) envd(w http.ResponseWriter, r *http.Request) {
	if user, _, _ := r.BasicAuth(); user != "user" || r.Header.Get("X-Access-Token") != "the token" {
		s.t.Errorf("%s as %q with token %q", r.URL, user, r.Header.Get("X-Access-Token"))
	}
	if strings.HasSuffix(r.URL.Path, "/files") {
		file, _, err := r.FormFile("file")
		if err != nil {
			s.t.Error(err)
			return
		}
		text, _ := io.ReadAll(file)
		s.mu.Lock()
		s.files[r.URL.Query().Get("path")] = string(text)
		s.mu.Unlock()
		return
	}
	body, _ := io.ReadAll(r.Body)
	var ask started
	if len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 || json.Unmarshal(body[5:], &ask) != nil {
		s.t.Errorf("%q is no envelope", body)
		return
	}
	if r.Header.Get("Content-Type") != "application/connect+json" || r.Header.Get("Connect-Timeout-Ms") == "" {
		s.t.Errorf("headers %v", r.Header)
	}
	s.mu.Lock()
	says, silent := s.says, s.silent
	s.mu.Unlock()
	if silent {
		<-r.Context().Done()
		return
	}
	messages := says(ask.Process.Args[1])
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	if messages == nil {
		select {
		case <-s.hangs:
		case <-r.Context().Done():
		}
		return
	}
	for i, message := range messages {
		head := []byte{0}
		if i == len(messages)-1 {
			head[0] = endOfStream
		}
		_, _ = w.Write(append(binary.BigEndian.AppendUint32(head, uint32(len(message))), message...))
	}
}

func box1(t *testing.T, d *Driver) sandbox.Box {
	t.Helper()
	b, err := d.Create(t.Context(), "a.1", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// A sandbox for which no time is asked lives for 15 s: a time is always sent, and again as long as
// the box is used.
func TestTrap16LifetimeIsAlwaysSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := inMemory(t)
		b, began := box1(t, d), time.Now()
		if timeout := s.asked[0]["timeout"]; timeout != 300.0 {
			t.Errorf("asked for %v seconds, expected 300: without them it is 15", timeout)
		}
		for i := range 3 {
			if life, after := <-s.lives, time.Since(began); life != 300 || after != time.Duration(i+1)*100*time.Second {
				t.Errorf("lengthened to %d seconds after %v", life, after)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := b.Close(t.Context()); err != nil || len(s.lives) != 0 || len(s.boxes) != 0 {
			t.Errorf("closed again: %v; still lengthened: %d, still there: %d", err, len(s.lives), len(s.boxes))
		}
	})
	if _, err := New(Options{Key: "k", Lifetime: time.Second}); err == nil {
		t.Error("a lifetime that cannot be lengthened in time was taken")
	}
}

func TestRun(t *testing.T) {
	s, d := newService(t)
	b := box1(t, d)
	if network := s.asked[0]["allow_internet_access"]; network != false || s.asked[0]["secure"] != true {
		t.Errorf("asked for %v", s.asked[0])
	}
	var scripts []string
	s.says = func(script string) []string {
		scripts = append(scripts, script)
		return ended(3, "exit status 3", "out\x00\xff", "err")
	}
	result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"it's", "a b"}, Env: map[string]string{"A": "1"}, Stdin: []byte("in\x00")})
	if err != nil || result.Exit != 3 || result.Signal != "" || string(result.Stdout) != "out\x00\xff" || string(result.Stderr) != "err" {
		t.Errorf("%+v, %v", result, err)
	}
	if !strings.Contains(scripts[0], `'it'\''s' 'a b'`) || !strings.Contains(scripts[0], "'A=1'") || s.files[inputFile] != "in\x00" || scripts[1] != ender {
		t.Errorf("ran %q with input %q", scripts, s.files[inputFile])
	}
	if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"\xff", strings.Repeat("x", 100<<10)}}); err != nil || !strings.Contains(s.files[scriptFile], "'\xff'") {
		t.Errorf("what is no text: %v", err)
	}
	s.says = func(string) []string { return ended(-1, "signal: segmentation fault (core dumped)", "", "") }
	if result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); err != nil || result.Exit != 139 || result.Signal != "SIGSEGV" {
		t.Errorf("%+v, %v", result, err)
	}
	s.says = func(string) []string { return ended(shell.NoDirectory, "exit status 98", "", "") }
	if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}, Dir: "/none"}); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a directory that is not there: %v", err)
	}
	s.says = func(string) []string {
		return ended(shell.NoDirectory, "exit status 98", "", "warning\n\x00of its own\x00")
	}
	if result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); err != nil || result.Exit != shell.NoDirectory || string(result.Stderr) != "warning\nof its own\x00" || result.StderrCut {
		t.Errorf("a program that ends like a directory that is not there: %+v, %v", result, err)
	}
}

// A command that does not end is ended, and so is one that nobody waits for or whose box is closed.
func TestCommandsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := inMemory(t)
		b := box1(t, d)
		running := make(chan struct{}, 10)
		var mu sync.Mutex
		enders := 0
		s.mu.Lock()
		s.says = func(script string) []string {
			if script == ender {
				mu.Lock()
				enders++
				mu.Unlock()
				return ended(0, "exit status 0", "", "")
			}
			running <- struct{}{}
			return nil
		}
		s.mu.Unlock()
		result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}, Time: time.Minute})
		<-running
		if err != nil || result.Limit != sandbox.Timeout || result.Exit != 137 || enders == 0 {
			t.Errorf("%+v, %v, ended %d times", result, err, enders)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-running; cancel() }()
		if _, err := b.Run(ctx, sandbox.Command{Argv: []string{"x"}}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		go func() { <-running; _ = b.Close(context.Background()) }()
		if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("closed: %v", err)
		}
		if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("after it: %v", err)
		}
	})
}

// A sandbox that hangs is lost. That its command had time enough is not known.
func TestASandboxThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := inMemory(t)
		b := box1(t, d)
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		began := time.Now()
		result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}, Time: time.Minute})
		if sandbox.ClassOf(err) != sandbox.Lost || time.Since(began) != 90*time.Second {
			t.Errorf("%+v, %v, after %v", result, err, time.Since(began))
		}
	})
}

func TestEndlessOutput(t *testing.T) {
	s, d := newService(t)
	b, err := d.Create(t.Context(), "a.1", sandbox.Spec{Limits: sandbox.Limits{Output: 10}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	s.says = func(string) []string { return ended(0, "exit status 0", strings.Repeat("x", 20), "") }
	if result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); err != nil || len(result.Stdout) != 10 || !result.StdoutCut || result.StderrCut || result.Limit != "" {
		t.Errorf("%+v, %v", result, err)
	}
	s.says = func(string) []string { return ended(0, "exit status 0", "", "\x00"+strings.Repeat("x", 10)) }
	if result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); err != nil || len(result.Stderr) != 10 || result.StderrCut {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestClassesOfCommands(t *testing.T) {
	for name, test := range map[string]struct {
		says   []string
		status int
		class  sandbox.Class
	}{
		"garbage":      {[]string{"\xff", "{}"}, 0, sandbox.Protocol},
		"no end":       {[]string{"{}"}, 0, sandbox.Protocol},
		"end is none":  {[]string{"7"}, 0, sandbox.Protocol},
		"refused":      {[]string{`{"error":{"code":"invalid_argument","message":"cwd"}}`}, 0, sandbox.Refused},
		"unavailable":  {[]string{`{"error":{"code":"unavailable","message":"m"}}`}, 0, sandbox.Lost},
		"full":         {[]string{`{"error":{"code":"resource_exhausted","message":"m"}}`}, 0, sandbox.Quota},
		"cut":          {[]string{}, 0, sandbox.Lost},
		"machine gone": {nil, http.StatusBadGateway, sandbox.Lost},
		"no token":     {nil, http.StatusUnauthorized, sandbox.Refused},
	} {
		s, d := newService(t)
		b := box1(t, d)
		s.says = func(string) []string { return test.says }
		s.status = func(r *http.Request) int {
			if strings.HasPrefix(r.URL.Path, "/envd") {
				return test.status
			}
			return 0
		}
		if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"x"}}); sandbox.ClassOf(err) != test.class {
			t.Errorf("%s: %v, expected class %s", name, err, test.class)
		}
	}
}

func TestClassesOfCreate(t *testing.T) {
	for status, class := range map[int]sandbox.Class{
		400: sandbox.Refused, 401: sandbox.Refused, 404: sandbox.Refused, 429: sandbox.Quota, 500: sandbox.BackendDown, 503: sandbox.BackendDown,
	} {
		s, d := newService(t)
		s.status = func(*http.Request) int { return status }
		if _, err := d.Create(t.Context(), "a.1", sandbox.Spec{}); sandbox.ClassOf(err) != class {
			t.Errorf("HTTP %d: %v, expected class %s", status, err, class)
		}
		if _, err := d.Check(t.Context()); err == nil {
			t.Errorf("HTTP %d: checked", status)
		}
	}
	s, d := newService(t)
	s.says = func(string) []string { return ended(1, "exit status 1", "", "no") }
	if _, err := d.Create(t.Context(), "a.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.StartFailed || len(s.boxes) != 0 {
		t.Errorf("no /work: %v; left: %v", err, s.boxes)
	}
	if _, err := d.Create(t.Context(), "a.1", sandbox.Spec{Root: "/r"}); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a root of this host: %v", err)
	}
}

func TestListAndDestroy(t *testing.T) {
	s, d := newService(t)
	for _, id := range []sandbox.ID{"a.1", "b.1", "a.2", "ab.1"} {
		b, err := d.Create(t.Context(), id, sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close(context.Background())
	}
	if ids, err := d.List(t.Context(), "a"); err != nil || fmt.Sprint(ids) != "[a.1 a.2]" {
		t.Errorf("%v, %v", ids, err)
	}
	for range 2 {
		if err := d.Destroy(t.Context(), "a.1"); err != nil {
			t.Error(err)
		}
	}
	if len(s.boxes) != 3 {
		t.Errorf("left: %v", s.boxes)
	}
}

func TestFiles(t *testing.T) {
	s, d := newService(t)
	b := box1(t, d)
	if err := b.Write(t.Context(), "/work/f", []byte("\x00\xff"), 0o640); err != nil || s.files[contentFile] != "\x00\xff" {
		t.Errorf("%v, %q", err, s.files)
	}
	s.says = func(string) []string { return ended(0, "exit status 0", "abc", "") }
	if got, err := b.Read(t.Context(), "/work/f", 3); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Read(t.Context(), "/work/f", 2); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	for exit, want := range map[int]error{shell.Missing: fs.ErrNotExist, shell.NoFile: fs.ErrInvalid} {
		s.says = func(string) []string { return ended(exit, "exit status", "", "") }
		if _, err := b.Read(t.Context(), "/work/f", 2); !errors.Is(err, want) {
			t.Errorf("%v, expected %v", err, want)
		}
	}
}

// A service that names a page again and again is not asked for ever.
func TestEndlessPages(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Next-Token", "again")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(endless.Close)
	if _, err := newDriver(t, endless.URL).List(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "1000 pages") {
		t.Errorf("%v", err)
	}
}
