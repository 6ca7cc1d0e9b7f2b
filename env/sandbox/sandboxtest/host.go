//go:build linux && amd64

package sandboxtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Where the program of the attacks lies in a box, and its name there. The program is the test's
// own, which does nothing else when it is called by that name.
const (
	armsDir    = "/arms"
	armName    = "headway-attack"
	victimName = "headway-victim"
	// canary begins every secret, so that an attack knows one when it has it without being told.
	canary = "headway-canary-"
	// placed begins the names of files that hold one; a secret's own beginning is in none of them.
	placed = ".headway-placed-"
)

// host is what is to be found on the host by whoever gets out.
type host struct {
	// secret is in the files, the environment, the arguments and the keys below, and nowhere in a box.
	secret string
	// arms is a directory with the program of the attacks.
	arms string
	// files that hold the secret, of which none may be read or written.
	files []string
	// addresses of listeners, TCP, UDP and unix; touched counts whom they heard.
	addresses []string
	touched   atomic.Int64
	// victim is another process, whose environment and arguments have the secret.
	victim *exec.Cmd
}

func newHost(t *testing.T) *host {
	h := &host{secret: canary + strings.ToLower(rand.Text())}
	t.Setenv("HEADWAY_CANARY", h.secret)
	h.arm(t)
	h.placeFiles(t)
	h.listen(t)
	h.startVictim(t)
	h.placeKey(t)
	return h
}

func (h *host) arm(t *testing.T) {
	h.arms = t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{armName, "setuid-" + armName} {
		if err := os.WriteFile(filepath.Join(h.arms, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(h.arms, "setuid-"+armName), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
}

// placeFiles puts the secret where data of users lies, as far as this user may.
func (h *host) placeFiles(t *testing.T) {
	dirs := []string{t.TempDir(), "/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/etc", "/opt", "/srv", "/var/lib", "/run"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, home)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, placed+h.secret[len(canary):len(canary)+8])
		if err := os.WriteFile(path, []byte(h.secret), 0o666); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(path) })
		h.files = append(h.files, path)
	}
	if len(h.files) < 3 {
		t.Fatalf("the secret could be put into %q alone", h.files)
	}
}

// listen opens what a program with the host's network would reach.
func (h *host) listen(t *testing.T) {
	names := []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"}
	for _, name := range names {
		if l, err := net.Listen("tcp", name); err == nil {
			h.serve(t, l)
		}
	}
	abstract := "@" + placed + "socket-" + h.secret[len(canary):len(canary)+8]
	for _, name := range []string{filepath.Join(t.TempDir(), "socket"), "/tmp/" + abstract[1:], abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		h.serve(t, l)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	h.addresses = append(h.addresses, "udp "+packets.LocalAddr().String())
	go func() {
		for buffer := make([]byte, 1); ; h.touched.Add(1) {
			if _, _, err := packets.ReadFrom(buffer); err != nil {
				return
			}
		}
	}()
}

func (h *host) serve(t *testing.T, l net.Listener) {
	t.Cleanup(func() { l.Close() })
	for _, address := range reachableAs(l.Addr()) {
		h.addresses = append(h.addresses, l.Addr().Network()+" "+address)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.touched.Add(1)
			io.WriteString(c, h.secret)
			c.Close()
		}
	}()
}

// reachableAs names an address that stands for all of the host's by each of them.
func reachableAs(address net.Addr) []string {
	tcp, is := address.(*net.TCPAddr)
	if !is || !tcp.IP.IsUnspecified() {
		return []string{address.String()}
	}
	var all []string
	own, _ := net.InterfaceAddrs()
	for _, a := range own {
		if prefix, is := a.(*net.IPNet); is && !prefix.IP.IsLinkLocalUnicast() {
			all = append(all, net.JoinHostPort(prefix.IP.String(), fmt.Sprint(tcp.Port)))
		}
	}
	return all
}

// startVictim starts a process that does nothing until its input ends.
func (h *host) startVictim(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.victim = exec.Command(program)
	h.victim.Args = []string{victimName, h.secret}
	h.victim.Env = []string{"SECRET=" + h.secret}
	input, err := h.victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		h.victim.Wait()
	})
}

// alive is that host and its secrets are as they were.
func (h *host) alive() error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.victim.Process.Pid))
	if err != nil {
		return fmt.Errorf("a process of the host is gone: %w", err)
	}
	if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "S") && !strings.HasPrefix(rest, "R") {
		return fmt.Errorf("a process of the host does not run: %s", stat)
	}
	var failures []error
	for _, path := range h.files {
		if text, err := os.ReadFile(path); err != nil || string(text) != h.secret {
			failures = append(failures, fmt.Errorf("%s of the host is %.100q, %v", path, text, err))
		}
	}
	if n := h.touched.Swap(0); n != 0 {
		failures = append(failures, fmt.Errorf("listeners of the host were reached %d times", n))
	}
	return errors.Join(failures...)
}
