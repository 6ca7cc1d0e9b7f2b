package runsc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Version is the commit of gVisor's module that is tested here, of its branch for `go install`. Sum
// is the checksum of that module's files. `make sandboxes` builds it.
const (
	Version = "v0.0.0-20260905035102-160fafc42237"
	Sum     = "h1:AU5+CtCvnBnxdZRNcZt1NfSLqgkXZVT3N/u6u1aXg44="
)

// installLine is how to get the program, to somewhere that is looked at.
const installLine = "CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@" + Version

// program finds runsc: what was named, or on the PATH, or where `make sandboxes` puts it.
func program(named string) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("gVisor runs on Linux, this is %s", runtime.GOOS)
	}
	if named != "" {
		return exec.LookPath(named)
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		return filepath.Abs(path)
	}
	if home, err := os.UserHomeDir(); err == nil {
		path := filepath.Join(home, ".cache", "headway", "runsc-"+Version, "runsc")
		if path, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no runsc on the PATH: get it with `" + installLine + "`, and have $(go env GOPATH)/bin on the PATH or name the program")
}
