package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// prepare returns the Python of a virtual environment that has what requirements.txt
// asks for, made if it is not there yet; it lies in the user's cache folder, under
// the hash of that file. The error says what is missing, and what to do.
func prepare() (python string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("no python3 on the PATH: the SimPy program has not been run beside ours (install Python 3.8 or later)")
	}
	requirements := filepath.Join("bench", "simulator", "requirements.txt")
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", fmt.Errorf("%w (run this from the root of the repository)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "headway", fmt.Sprintf("bench-simulator-%x", sha256.Sum256(text))[:32])
	python = filepath.Join(venv, "bin", "python")
	if runtime.GOOS == "windows" {
		python = filepath.Join(venv, "Scripts", "python.exe")
	}
	if exec.Command(python, "-c", "import simpy").Run() == nil {
		return python, nil
	}
	fmt.Fprintf(os.Stderr, "installing SimPy into %s\n", venv)
	for _, args := range [][]string{
		{system, "-m", "venv", "--clear", venv},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", requirements},
	} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("SimPy cannot be installed, so that it has not been run beside ours: %v: %w\n%s", args, err, bytes.TrimSpace(text))
		}
	}
	return python, nil
}
