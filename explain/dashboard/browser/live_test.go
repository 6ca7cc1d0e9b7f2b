package browser

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A live run is shown while it goes on, and its timeline follows it.
func TestLiveRunIsFollowed(t *testing.T) {
	s := serve(t, "run", "--steps", "100000", "--dir", t.TempDir(), "--name", "live")
	p := openTab(t, wide, s.url+"#/timeline")
	p.ready("timeline")
	eval[bool](p, canvasFocus+"; true")
	p.keys("l")
	p.wait("document.querySelector('button[aria-pressed=true]')?.innerText === 'Follow'")
	p.wait("location.hash.includes('follow=1')")
	said := p.text(".facts")
	p.wait(fmt.Sprintf("document.querySelector('.facts').innerText !== %q", said))
	p.picture("timeline-live")
	p.allowed = func(problem string) bool { return strings.Contains(problem, "net::ERR_") } // what was asked for as it died
	s.stop()
	p.waitText("Connection lost")
	p.picture("timeline-connection-lost")
}

// How long after a train step's line in the log its version is on the page: a stream of a thousand events a second.
func TestLiveLag(t *testing.T) {
	long(t)
	trace, err := os.Open(large(t))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	growing, err := os.Create(t.TempDir() + "/growing.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer growing.Close()
	lines := bufio.NewScanner(trace)
	lines.Buffer(nil, 1<<20)
	// write copies lines up to the end of the next train step, some events a burst, and returns the version it made.
	version := 0
	write := func() {
		for lines.Scan() {
			if _, err := fmt.Fprintf(growing, "%s\n", lines.Bytes()); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(lines.Text(), `"e":"train-step-ended"`) {
				version++
				return
			}
		}
		t.Fatal("the trace has ended")
	}
	for range 20 {
		write()
	}
	s := serve(t, "view", growing.Name(), "--listen", "127.0.0.1:0")
	p := openTab(t, wide, s.url)
	p.ready("overview")
	shown := "Number((document.querySelector('.facts').innerText.match(/version\\s*v(\\d+)/) ?? [0, -1])[1])"
	var lags []float64
	for range 40 {
		write()
		began := time.Now()
		p.wait(fmt.Sprintf("%s >= %d", shown, version-1)) // the newest line's own actions are not written yet
		lags = append(lags, time.Since(began).Seconds())
	}
	slices.Sort(lags)
	t.Logf("a version on the page after its line in the log: median %.0f ms, p95 %.0f ms, most %.0f ms", 1000*lags[20], 1000*lags[37], 1000*lags[39])
}

// A thousand viewers that read nothing, on a live run: its steps take as long as without them.
func TestThousandSlowViewers(t *testing.T) {
	long(t)
	program := headway(t)
	steps := func(viewers int) time.Duration {
		command := exec.Command(program, "run", "--steps", "300", "--dir", t.TempDir(), "--name", "watched")
		read, write := io.Pipe()
		command.Stdout, command.Stderr = write, write
		began := time.Now()
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait(); _ = write.Close() }()
		said := bufio.NewScanner(read)
		for said.Scan() {
			at := address.FindString(said.Text())
			if at == "" {
				continue
			}
			began = time.Now()
			to, err := url.Parse(at)
			if err != nil {
				t.Fatal(err)
			}
			for range viewers {
				slow, err := net.Dial("tcp", to.Host)
				if err != nil {
					t.Fatal(err)
				}
				defer slow.Close()
				if _, err := fmt.Fprintf(slow, "GET /api/v1/view/stream HTTP/1.1\r\nHost: %s\r\n\r\n", to.Host); err != nil {
					t.Fatal(err)
				}
			}
			break
		}
		go func() { _, _ = io.Copy(io.Discard, read) }()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	for range 3 {
		alone, watched := steps(0), steps(1000)
		t.Logf("300 train steps: %.1f s alone, %.1f s with 1,000 viewers that read nothing", alone.Seconds(), watched.Seconds())
	}
}
