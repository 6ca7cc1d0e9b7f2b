package chaos

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// process is a part of the job that is started again whenever it is killed.
type process struct {
	t    *testing.T
	name string
	args []string
	env  []string
	log  string

	mu     sync.Mutex
	cmd    *exec.Cmd
	ended  chan error
	starts int
}

// kind is the process's name without its number: nats for nats-2.
func (p *process) kind() string {
	kind, _, _ := strings.Cut(p.name, "-")
	return kind
}

// traced is how long the mirror of a run's log is, in bytes.
func (p *process) traced(run string) int64 {
	info, err := os.Stat(filepath.Join(run, "trace.ndjson.zst"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// awaitTrace waits until a run's log is longer than so many bytes.
func (p *process) awaitTrace(run string, size int64) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); p.traced(run) <= size; pass(5 * time.Millisecond) {
		if gone, err := p.gone(); gone || time.Now().After(deadline) {
			p.t.Fatalf("the log has %d bytes and does not reach %d (ended: %v, %v)\n%s", p.traced(run), size, gone, err, p.tail())
		}
	}
}

// start runs the program, what it says appended to its log.
func (p *process) start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
	p.cmd, p.starts = cmd, p.starts+1
	ended := make(chan error, 1)
	p.ended = ended
	go func() { ended <- cmd.Wait() }()
}

// kill ends the process by SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // or it is gone already
	<-p.ended
	p.ended <- nil
}

// freeze stops the process for a while, as a machine does that swaps or is cut off, and
// lets it go on with whatever it believes.
func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	frozen := p.cmd.Process
	p.mu.Unlock()
	_ = frozen.Signal(syscall.SIGSTOP) // or it is gone
	time.AfterFunc(d, func() { _ = frozen.Signal(syscall.SIGCONT) })
}

// gone reports whether the process has ended by itself.
func (p *process) gone() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case err := <-p.ended:
		p.ended <- err
		return true, err
	default:
		return false, nil
	}
}

// terminate asks the process to end in order, and says how it did.
func (p *process) terminate(limit time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		p.ended <- <-p.ended
		return fmt.Errorf("%s did not end within %s", p.name, limit)
	}
}

// tail is the end of what the process said.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2500):])
}

// front is what clients connect to: it passes connections to whichever control plane is
// ready, as a service in front of a writer and its standby does.
type front struct {
	listener net.Listener
	backends []string
	ready    atomic.Int64
	done     chan struct{}
}

func newFront(t *testing.T, backends ...string) *front {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{listener: listener, backends: backends, done: make(chan struct{})}
	f.ready.Store(-1)
	go f.probe()
	go f.accept()
	t.Cleanup(func() { close(f.done); listener.Close() })
	return f
}

func (f *front) url() string { return "http://" + f.listener.Addr().String() }

// probe looks for the control plane that is ready.
func (f *front) probe() {
	client := &http.Client{Timeout: time.Second}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		found := int64(-1)
		for i, address := range f.backends {
			if response, err := client.Get("http://" + address + "/readyz"); err == nil {
				response.Body.Close()
				if response.StatusCode == http.StatusOK {
					found = int64(i)
				}
			}
		}
		f.ready.Store(found)
		select {
		case <-ticker.C:
		case <-f.done:
			return
		}
	}
}

func (f *front) accept() {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.pass(c)
	}
}

func (f *front) pass(client net.Conn) {
	defer client.Close()
	i := f.ready.Load()
	if i < 0 {
		return
	}
	server, err := net.Dial("tcp", f.backends[i])
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
		client.Close()
	}()
	_, _ = io.Copy(client, server)
}

// ports reserves so many ports of this machine; they are free again when it returns.
func ports(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

// build makes a program of this module or of one it depends on.
func build(t *testing.T, dir, name, pkg string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, bytes.TrimSpace(out))
	}
	return path
}

// root is the module's directory, seen from this package.
const root = "../../../.."
