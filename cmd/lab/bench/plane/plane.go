// Package plane starts the control plane that an experiment talks to.
package plane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Plane is a running headway serve.
type Plane struct {
	// URL is where it answers, PID its process.
	URL string
	PID int
	cmd *exec.Cmd
}

// name is the run's.
const name = "bench"

// Build builds headway of the current folder into dir, and returns its path.
func Build(dir string) (program string, err error) {
	program = filepath.Join(dir, "headway")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/headway").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building headway (run this from the repository's root): %w\n%s", err, out)
	}
	return program, nil
}

// Serve builds headway of the current folder and starts it as Start does.
func Serve(dir string, arguments ...string) (*Plane, error) {
	program, err := Build(dir)
	if err != nil {
		return nil, err
	}
	return Start(program, dir, arguments...)
}

// Start starts headway serve of a built program with these arguments on a free port, its run below
// dir, and returns once it is ready. Stop ends it, as does the end of this process on Linux.
func Start(program, dir string, arguments ...string) (*Plane, error) {
	arguments = append([]string{"serve", "--dir", dir, "--name", name, "--listen", "127.0.0.1:0", "--set", "store.samples_every=0"}, arguments...)
	p := &Plane{cmd: exec.Command(program, arguments...)}
	var said bytes.Buffer
	p.cmd.Stderr = &said
	Own(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = p.cmd.Process.Pid
	var err error
	if p.URL, err = reachable(filepath.Join(dir, name, "serve.json")); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%w: %s", err, said.String())
	}
	return p, nil
}

// Stop ends the control plane at once.
func (p *Plane) Stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// reachable waits until the control plane whose address is in the file is ready.
func reachable(file string) (string, error) {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(file)
		var address struct{ URL string }
		if err != nil || json.Unmarshal(text, &address) != nil {
			continue
		}
		if res, err := http.Get(address.URL + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return address.URL, nil
			}
		}
	}
	return "", errors.New("headway serve did not come up")
}
