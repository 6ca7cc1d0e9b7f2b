package browser

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
)

// cdpCall is cdp.Call, which every test of this package uses through one name.
func cdpCall[P, R any](ctx context.Context, session cdp.Session, command cdp.Command[P, R], params P) (R, error) {
	return cdp.Call(ctx, session, command, params)
}

// program builds headway once, unless HEADWAY_PROGRAM names one.
var program = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("HEADWAY_PROGRAM"); named != "" {
		return named, nil
	}
	path := filepath.Join(theDirectory, "headway")
	build := exec.Command("go", "build", "-o", path, "github.com/headway-rl/headway/cmd/headway")
	build.Stderr = os.Stderr
	return path, build.Run()
})

// headway returns the program, or fails the test.
func headway(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatalf("building headway: %v", err)
	}
	return path
}

// recordedRun is a small run of the default task, recorded once.
var recordedRun = sync.OnceValues(func() (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	directory := filepath.Join(theDirectory, "run")
	run := exec.Command(path, "run", "--steps", "40", "--dir", directory, "--name", "small", "--no-dashboard")
	run.Stdout, run.Stderr = io.Discard, os.Stderr
	return filepath.Join(directory, "small"), run.Run()
})

func recorded(t *testing.T) string {
	t.Helper()
	directory, err := recordedRun()
	if err != nil {
		t.Fatalf("recording a run: %v", err)
	}
	return directory
}

// server is a running headway that serves pages.
type server struct {
	url     string
	command *exec.Cmd
	ended   chan struct{}
}

// address is where pages are, with the token of their link; those of a control plane have none.
var address = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)(?:/#/\?token=(\w+))?`)

// tokens are those of the servers' links by host and port.
var tokens sync.Map

// linked is an address of pages with the token of their link.
func linked(address string) string {
	at, err := url.Parse(address)
	if err != nil {
		return address
	}
	token, ok := tokens.Load(at.Host)
	if !ok {
		return address
	}
	before, route, _ := strings.Cut(address, "#")
	if route == "" {
		route = "/"
	}
	separator := "?"
	if strings.Contains(route, "?") {
		separator = "&"
	}
	return before + "#" + route + separator + "token=" + token.(string)
}

// serve starts headway with arguments and returns when it has said where its pages are.
func serve(t *testing.T, arguments ...string) *server {
	t.Helper()
	return serveProgram(t, headway(t), arguments...)
}

func serveProgram(t *testing.T, path string, arguments ...string) *server {
	t.Helper()
	s := &server{command: exec.Command(path, arguments...), ended: make(chan struct{})}
	s.command.Env = append(os.Environ(), "TMPDIR="+theDirectory) // one that is killed clears nothing up
	read, write := io.Pipe()
	s.command.Stdout, s.command.Stderr = write, write
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.command.Wait()
		_ = write.Close()
		close(s.ended)
	}()
	t.Cleanup(s.stop)
	said := ""
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		said += lines.Text() + "\n"
		if at := address.FindStringSubmatch(lines.Text()); at != nil {
			s.url = "http://" + at[1] + "/"
			if at[2] != "" {
				tokens.Store(at[1], at[2])
			}
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return s
		}
	}
	t.Fatalf("headway %v ended without saying where its pages are:\n%s", arguments, said)
	return nil
}

// stop kills the program, as a machine that fails would.
func (s *server) stop() {
	_ = s.command.Process.Kill()
	<-s.ended
}
