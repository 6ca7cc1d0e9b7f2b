package swerex

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// recorded is what swerex-remote 1.4.0 answered, by name; see testdata/README.
func recorded(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fake answers every request as given.
func fake(t *testing.T, answer http.HandlerFunc) *Driver {
	t.Helper()
	front := httptest.NewServer(answer)
	t.Cleanup(front.Close)
	return mustDriver(t, Options{URLs: []string{front.URL}})
}

func answers(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// said is what supervise.py says, as /execute hands it on.
func said(text string) string {
	whole, _ := json.Marshal(map[string]any{"stdout": text, "stderr": "", "exit_code": 0})
	return string(whole)
}

func TestClassesOfCreate(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		text   string
		class  sandbox.Class
	}{
		"full":             {200, said(`{"error":"full","message":"m"}`), sandbox.Quota},
		"a name twice":     {200, said(`{"error":"exists","message":"m"}`), sandbox.Refused},
		"another error":    {200, said(`{"error":"new","message":"m"}`), sandbox.Protocol},
		"no answer":        {200, said("Traceback"), sandbox.Protocol},
		"no JSON":          {200, "hello", sandbox.Protocol},
		"a strange 511":    {511, "{}", sandbox.Protocol},
		"no shell":         {511, recorded(t, "missing_program"), ""},
		"too slow":         {511, recorded(t, "timeout"), sandbox.StartTimeout},
		"no session":       {511, recorded(t, "no_session"), sandbox.Lost},
		"no process left":  {511, `{"swerexception":{"message":"m","class_path":"builtins.BlockingIOError"}}`, sandbox.Quota},
		"another one":      {511, `{"swerexception":{"message":"m","class_path":"builtins.ValueError"}}`, sandbox.StartFailed},
		"a wrong key":      {401, "", sandbox.Refused},
		"too many":         {429, "", sandbox.Quota},
		"nobody behind":    {503, "", sandbox.BackendDown},
		"broken":           {500, "", sandbox.BackendDown},
		"something else":   {404, "", sandbox.Protocol},
		"no form of these": {422, `{"detail":[]}`, sandbox.Protocol},
	} {
		_, err := fake(t, answers(test.status, test.text)).Create(t.Context(), "a.1", sandbox.Spec{})
		if err == nil || sandbox.ClassOf(err) != test.class {
			t.Errorf("%s: %v, expected class %q", name, err, test.class)
		}
		if test.class == "" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, expected what is missing", name, err)
		}
	}
}

// A request that nobody answered is sent again under the same X-Request-ID; one that was, is not.
func TestRepeatsUnderOneName(t *testing.T) {
	var requests atomic.Int64
	names := make(chan string, 8)
	d := fake(t, func(w http.ResponseWriter, r *http.Request) {
		names <- r.Header.Get("X-Request-ID")
		if r.Header.Get("X-API-Key") != key {
			t.Errorf("the key is %q", r.Header.Get("X-API-Key"))
		}
		if requests.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, said(`{}`))
	})
	if _, err := d.Create(t.Context(), "a.1", sandbox.Spec{}); err != nil {
		t.Fatal(err)
	}
	if first, second := <-names, <-names; first == "" || first != second || requests.Load() != 2 {
		t.Errorf("sent %d times, as %q and %q", requests.Load(), first, second)
	}
}

// A server that is down does not keep boxes from being made on another.
func TestGoesRoundServers(t *testing.T) {
	up := httptest.NewServer(answers(200, said(`{}`)))
	defer up.Close()
	down := httptest.NewServer(answers(500, ""))
	defer down.Close()
	d := mustDriver(t, Options{URLs: []string{down.URL, up.URL}})
	for _, id := range []sandbox.ID{"a.1", "a.2", "a.3"} {
		if _, err := d.Create(t.Context(), id, sandbox.Spec{}); err != nil {
			t.Error(err)
		}
	}
	if ids, err := d.List(t.Context(), "a"); err != nil || len(ids) > 0 {
		t.Errorf("the list of those that answer: %v, %v", ids, err)
	}
	if _, err := mustDriver(t, Options{URLs: []string{down.URL}}).List(t.Context(), "a"); sandbox.ClassOf(err) != sandbox.BackendDown {
		t.Errorf("a list of none that answers: %v", err)
	}
}

// A server that hangs is left out, and keeps nothing from being made, listed or ended on another.
func TestAServerThatHangs(t *testing.T) {
	up := httptest.NewServer(answers(200, said(`{}`)))
	defer up.Close()
	var asked atomic.Int64
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // so that the end of the request is noticed
		<-r.Context().Done()
	}))
	defer hangs.Close()
	d := mustDriver(t, Options{URLs: []string{hangs.URL, up.URL}})
	d.servers[0].askTime, d.servers[0].makeTime = 50*time.Millisecond, 50*time.Millisecond
	silent := 0 // it may make the box yet, which therefore ends everywhere
	for _, id := range []sandbox.ID{"a.1", "a.2", "a.3", "a.4"} {
		if _, err := d.Create(t.Context(), id, sandbox.Spec{}); sandbox.ClassOf(err) == sandbox.BackendDown {
			silent++
		} else if err != nil {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 1 || silent != 1 {
		t.Errorf("it was asked for %d boxes, and %d were not made", n, silent)
	}
	if err := d.Destroy(t.Context(), "a.1"); err != nil {
		t.Error(err)
	}
	if _, err := d.List(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestChecksTheApi(t *testing.T) {
	for name, test := range map[string]struct {
		alive, api string
		class      sandbox.Class
	}{
		"dead":      {`{"is_alive":false,"message":"tired"}`, "", sandbox.BackendDown},
		"older":     {`{"is_alive":true}`, `{"paths":{"/run":{}}}`, sandbox.Protocol},
		"not JSON":  {`<html>`, "", sandbox.Protocol},
		"all there": {`{"is_alive":true}`, recorded(t, "openapi"), ""},
	} {
		d := fake(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, map[string]string{"/is_alive": test.alive, "/openapi.json": test.api, "/execute": said(`{"python":"3"}`)}[r.URL.Path])
		})
		if _, err := d.Check(t.Context()); sandbox.ClassOf(err) != test.class {
			t.Errorf("%s: %v, expected class %q", name, err, test.class)
		}
	}
}

func TestBoundaryIsTheOperators(t *testing.T) {
	d := mustDriver(t, Options{URLs: []string{"http://h"}, Boundary: sandbox.Boundary{Files: true, Processes: true, Network: true}})
	if d.link != sandbox.Work {
		t.Errorf("a server's only box is at %q", d.link)
	}
	for _, o := range []Options{{}, {URLs: []string{"h:1"}}, {URLs: []string{"http://h", "http://h/"}}, {URLs: []string{"http://h"}, Directory: "boxes"}, {URLs: []string{"http://h"}, Key: "a\nb"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	for _, spec := range []sandbox.Spec{{Root: "/x"}, {Image: "x"}, {Mounts: []sandbox.Mount{{Host: "/x", Box: "/x"}}}} {
		if _, err := d.Create(t.Context(), "a.1", spec); sandbox.ClassOf(err) != sandbox.Refused || !strings.Contains(err.Error(), "cannot choose") {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}
