package llamacpp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// TestMain plays a server where a test has started this program as one: HEADWAY_TEST_SERVES says how,
// as BEHAVIOUR ADDRESS PIDFILE.
func TestMain(m *testing.M) {
	if how := strings.Fields(os.Getenv("HEADWAY_TEST_SERVES")); len(how) == 3 {
		serve(how[0], how[1], how[2], os.Args[1:])
	}
	os.Exit(m.Run())
}

// serve is a llama-server as far as a restart sees one: it answers /health, and /props with the label it was given.
func serve(behaviour, address, pids string, arguments []string) {
	if arguments[0] == "descend" { // a child that would outlive its parent
		for { // select would end the program as a deadlock, without cgo
			_ = syscall.Pause()
		}
	}
	if behaviour == "broken" {
		fmt.Println("error loading model: no such tensor")
		os.Exit(1)
	}
	child := exec.Command(os.Args[0], "descend")
	if err := child.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(pids, []byte(fmt.Sprintf("%d %d", os.Getpid(), child.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
	if behaviour == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {})
	http.HandleFunc("/props", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"model_alias":%q}`, arguments[1]) })
	panic(http.ListenAndServe(address, nil))
}

// restarted is a dialect whose command is this program, and its server.
func restarted(t *testing.T, behaviour string, o Options) (d *Dialect, s *upstream.Server, alive func() []int) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	pids := filepath.Join(t.TempDir(), "pids")
	t.Setenv("HEADWAY_TEST_SERVES", behaviour+" "+address+" "+pids)
	o.Command = []string{os.Args[0], "{weights}", "{label}"}
	o.Logf = t.Logf
	d = New(o)
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	alive = func() (left []int) {
		text, _ := os.ReadFile(pids)
		for _, field := range strings.Fields(string(text)) {
			if pid, _ := strconv.Atoi(field); pid > 0 && running(pid) {
				left = append(left, pid)
			}
		}
		return left
	}
	return d, reach(t, "http://"+address), alive
}

// running reports whether a process is there and has not ended: one that nobody has waited for has.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return fields[0] != "Z" && fields[0] != "X"
}

// gone waits until none of the processes is there.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for ctx := limited(t); ; {
		left := 0
		for _, pid := range pids {
			if running(pid) {
				left++
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of the processes %v are left over", left, pids)
		case <-time.After(time.Millisecond):
		}
	}
}

// A restart ends the old server with everything it had started, and serves the new weights at the
// same address. One that does not hear SIGTERM is killed.
func TestRestart(t *testing.T) {
	for _, behaviour := range []string{"polite", "deaf"} {
		t.Run(behaviour, func(t *testing.T) {
			d, s, alive := restarted(t, behaviour, Options{Grace: 300 * time.Millisecond})
			var before []int
			for i, label := range []string{"v0", "v1", "v2"} {
				if err := d.Restart(limited(t), s, upstream.Update{Dir: "w" + strconv.Itoa(i), Label: label}); err != nil {
					t.Fatal(err)
				}
				if got, err := d.Version(limited(t), s, nil); err != nil || got != label {
					t.Errorf("it serves %q, want %q, %v", got, label, err)
				}
				gone(t, before)
				if before = alive(); len(before) != 2 {
					t.Errorf("processes %v, want the server and its child", before)
				}
			}
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
			gone(t, before)
		})
	}
}

// A server that cannot load says why in its last words, and nothing is left of it.
func TestRestartFails(t *testing.T) {
	d, s, alive := restarted(t, "broken", Options{})
	err := d.Restart(limited(t), s, upstream.Update{Dir: "w", Label: "v1"})
	if err == nil || !strings.Contains(err.Error(), "no such tensor") || len(alive()) != 0 {
		t.Errorf("%v, %v", err, alive())
	}
}

// What somebody else has started is not taken for the restarted server.
func TestRestartBesideAnother(t *testing.T) {
	d, s, _ := restarted(t, "polite", Options{})
	other, err := net.Listen("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler()}
	go server.Serve(other)
	defer server.Close()
	if err := d.Restart(limited(t), s, upstream.Update{}); err == nil || !strings.Contains(err.Error(), "that headway has not started") {
		t.Error(err)
	}
}

// The conversion comes first: where it fails the old server goes on.
func TestConvert(t *testing.T) {
	made := filepath.Join(t.TempDir(), "v1.gguf")
	d, s, alive := restarted(t, "polite", Options{Convert: []string{"sh", "-c", "echo {weights} > " + made}})
	if err := d.Restart(limited(t), s, upstream.Update{Dir: "weights-1", Label: "v1"}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(made); err != nil || string(text) != "weights-1\n" {
		t.Errorf("converted %q, %v", text, err)
	}
	before := alive()
	d.options.Convert = []string{"sh", "-c", "echo out of disk >&2; exit 3"}
	err := d.Restart(limited(t), s, upstream.Update{Dir: "weights-2", Label: "v2"})
	if err == nil || !strings.Contains(err.Error(), "out of disk") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if got, err := d.Version(limited(t), s, nil); err != nil || got != "v1" || len(alive()) != len(before) {
		t.Errorf("after a failed conversion it serves %q, %v", got, err)
	}
	d.options.Command = nil
	if err := d.Restart(limited(t), s, upstream.Update{}); err == nil || !errors.Is(err, errNoCommand) {
		t.Error(err)
	}
}
