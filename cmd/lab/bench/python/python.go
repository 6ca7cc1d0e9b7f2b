// Package python prepares the Python that a peer of an experiment runs in.
package python

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Prepare returns the Python of a virtual environment with the packages that requirements.txt of an
// experiment's folder asks for, with hashes. It makes the environment if it is not there yet. The
// environment lies in the user's cache folder, under the hash of that file. The argument what names
// the peers for messages, and imports has the modules that must be there. The error says what is
// missing, and what to do.
func Prepare(experiment, what, imports string) (python string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("no python3 on the PATH: %s: not run beside ours (install Python 3.10 or later)", what)
	}
	requirements := filepath.Join("cmd/lab/bench", experiment, "requirements.txt")
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", fmt.Errorf("%w (run this from the root of the repository)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "headway", fmt.Sprintf("bench-%s-%.16x", experiment, sha256.Sum256(text)))
	python = filepath.Join(venv, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(venv, "Scripts", "python.exe")
	}
	if exec.Command(python, "-c", "import "+imports).Run() == nil {
		return python, nil
	}
	fmt.Fprintf(os.Stderr, "installing %s into %s\n", what, venv)
	install := []string{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements}
	if bytes.Contains(text, []byte("--hash=")) {
		install = append(install, "--require-hashes")
	}
	for _, args := range [][]string{{system, "-m", "venv", "--clear", venv}, install} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", errors.Join(fmt.Errorf("%s cannot be installed, so not run beside ours: %v: %w", what, args, err), errors.New(string(bytes.TrimSpace(text))))
		}
	}
	return python, nil
}
