package swerex

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
)

const key = "the tests' key"

// serve starts swerex-remote with the Python that HEADWAY_ENVIRONMENTS_PYTHON names: one that has what
// env/episode/openenv/testdata/requirements.txt asks for.
func serve(t testing.TB) string {
	t.Helper()
	python := os.Getenv("HEADWAY_ENVIRONMENTS_PYTHON")
	if python == "" {
		t.Skip("HEADWAY_ENVIRONMENTS_PYTHON names no Python that has SWE-ReX (make test-engines installs one)")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	listener.Close()
	command := exec.Command(python, "-m", "swerex.server", "--host", "127.0.0.1", "--port", port, "--auth-token", key)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = command.Wait(); close(exited) }()
	t.Cleanup(func() { _ = command.Process.Kill(); <-exited; log.Close() })
	awaitAlive(t, "http://"+address, exited, log.Name())
	return "http://" + address
}

func awaitAlive(t testing.TB, url string, exited <-chan struct{}, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/is_alive", nil)
		request.Header.Set("X-API-Key", key)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			return
		}
		select {
		case <-again.C:
		case <-exited:
			text, _ := os.ReadFile(log)
			t.Fatalf("swerex-remote ended: %s", text)
		case <-ctx.Done():
			t.Fatalf("swerex-remote does not answer: %v", ctx.Err())
		}
	}
}

func mustDriver(t testing.TB, o Options) *Driver {
	t.Helper()
	if o.Key == "" {
		o.Key = key
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What every driver must pass, on one real server that many boxes share.
func TestConformance(t *testing.T) {
	url := os.Getenv("HEADWAY_SWEREX_TEST_URL") // set in the process that is killed
	if url == "" {
		url = serve(t)
	}
	sandboxtest.Conformance(t, sandboxtest.Subject{
		New: func(t testing.TB, dir string) sandbox.Driver {
			return mustDriver(t, Options{URLs: []string{url}, Boxes: 500, Directory: filepath.Join(dir, "boxes")})
		},
		Env: []string{"HEADWAY_SWEREX_TEST_URL=" + url},
	})
}

// A server has one box at a time, unless it is told otherwise, and a second driver meets that, too.
func TestOneBoxAServer(t *testing.T) {
	dir := t.TempDir()
	o := Options{URLs: []string{serve(t), serve(t)}, Directory: dir}
	// Both servers of this test share a file system: tell them apart by their directories.
	one, other := mustDriver(t, Options{URLs: o.URLs[:1], Directory: dir + "/one"}), mustDriver(t, Options{URLs: o.URLs[1:], Directory: dir + "/other"})
	first, err := one.Create(t.Context(), "a.1", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mustDriver(t, Options{URLs: o.URLs[:1], Directory: dir + "/one"}).Create(t.Context(), "b.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Quota {
		t.Errorf("a second box: %v, expected class quota", err)
	}
	second, err := other.Create(t.Context(), "a.2", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := one.Attach(t.Context(), "a.1", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Write(t.Context(), "/work/f", []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := again.Read(t.Context(), "/work/f", 10); err != nil || string(got) != "kept" {
		t.Errorf("attached: %q, %v", got, err)
	}
	if _, err := one.Attach(t.Context(), "a.3", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("attached to nothing: %v", err)
	}
	for _, b := range []sandbox.Box{first, second} {
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir + "/one/a.1"); !os.IsNotExist(err) {
		t.Errorf("what the box has written is still there: %v", err)
	}
}

// A directory /work that is there already is somebody's: it is never touched.
func TestWorkOfTheServersOwn(t *testing.T) {
	entries, err := os.ReadDir(sandbox.Work)
	if err != nil {
		t.Skip("there is no /work here")
	}
	_, err = mustDriver(t, Options{URLs: []string{serve(t)}}).Create(t.Context(), "a.1", sandbox.Spec{})
	if sandbox.ClassOf(err) != sandbox.StartFailed || !strings.Contains(err.Error(), "of its own") {
		t.Errorf("%v, expected a start that failed", err)
	}
	if after, _ := os.ReadDir(sandbox.Work); len(after) != len(entries) {
		t.Errorf("/work has changed")
	}
}

func TestCheckARealServer(t *testing.T) {
	url := serve(t)
	if _, err := mustDriver(t, Options{URLs: []string{url}, Key: "wrong", Directory: t.TempDir()}).Check(t.Context()); err == nil {
		t.Error("a wrong key was taken")
	} else {
		t.Log(err)
	}
	boundary, err := mustDriver(t, Options{URLs: []string{url}, Directory: t.TempDir()}).Check(t.Context())
	if err != nil || boundary.Secure() || boundary.Why == "" {
		t.Errorf("%+v, %v: nothing is known of the server's container", boundary, err)
	}
}

// The limits that no container but the driver enforces.
func TestLimitsOfTheDriversOwn(t *testing.T) {
	d := mustDriver(t, Options{URLs: []string{serve(t)}, Directory: t.TempDir()})
	spec := sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20, Processes: 20, Disk: 1 << 20}}
	b, err := d.Create(t.Context(), "a.1", spec)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	for script, want := range map[string]sandbox.Class{
		"head -c 400000000 /dev/zero | { sleep 0.1; tail; sleep 60; }":                  sandbox.OutOfMemory,
		"i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; wait":                sandbox.Processes,
		"exec head -c 4000000 /dev/zero > large":                                        sandbox.Disk,
		"head -c 100000 /dev/zero | tail -c 10 > small; sleep 0.1; test -s small; echo": "",
	} {
		result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", script}})
		if err != nil || result.Limit != want {
			t.Errorf("%s: %+v, %v; expected limit %q", script, result, err, want)
		}
	}
}

// A server that goes away takes its boxes with it.
func TestServerKilled(t *testing.T) {
	url := serve(t)
	d := mustDriver(t, Options{URLs: []string{url}, Directory: t.TempDir()})
	b, err := d.Create(t.Context(), "a.1", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "grep PPid /proc/$PPID/status"}})
	if err != nil || pid.Exit != 0 {
		t.Fatal(string(pid.Stderr), err)
	}
	body, _ := json.Marshal(map[string]any{"command": "kill -9 $PPID", "shell": true})
	request, _ := http.NewRequest(http.MethodPost, url+"/execute", strings.NewReader(string(body)))
	request.Header.Set("X-API-Key", key)
	request.Header.Set("Content-Type", "application/json")
	if response, err := http.DefaultClient.Do(request); err == nil {
		response.Body.Close()
	}
	if _, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"true"}}); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("run on a server that is gone: %v, expected class lost", err)
	}
	if _, err := d.Create(t.Context(), "a.2", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.BackendDown {
		t.Errorf("create on a server that is gone: %v, expected class backend_down", err)
	}
}
