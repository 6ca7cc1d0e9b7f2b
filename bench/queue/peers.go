package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// prepare returns the Python of a virtual environment that has what requirements.txt asks
// for, made if it is not there yet; it lies in the user's cache folder, under the hash of
// that file. The error says what is missing, and what to do.
func prepare() (python string, err error) {
	system, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("no python3 on the PATH: Ray and TransferQueue have not been run (install Python 3.10 or later)")
	}
	requirements := filepath.Join("bench", "queue", "requirements.txt")
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", fmt.Errorf("%w (run this from the root of the repository)", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(cache, "headway", fmt.Sprintf("bench-queue-%x", sha256.Sum256(text))[:28])
	python = filepath.Join(venv, "bin", "python")
	if exec.Command(python, "-c", "import ray, transfer_queue").Run() == nil {
		return python, nil
	}
	fmt.Fprintf(os.Stderr, "installing Ray and TransferQueue into %s\n", venv)
	for _, args := range [][]string{
		{system, "-m", "venv", "--clear", venv},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements},
	} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("Ray and TransferQueue cannot be installed, so that they have not been run: %v: %w\n%s", args, err, bytes.TrimSpace(text))
		}
	}
	return python, nil
}

// peer runs a queue of others over the same arrays.
func peer(python, name string, l load) (figure, error) {
	command := exec.Command(python, filepath.Join("bench", "queue", "peer.py"), name,
		"--groups", strconv.Itoa(peerGroups(l)), "--rollouts", strconv.Itoa(l.rollouts), "--tokens", strconv.Itoa(l.tokens))
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.Output()
	if err != nil {
		return figure{}, fmt.Errorf("%w\n%s", err, failed.Bytes())
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var said struct {
		GroupsPerS float64 `json:"groups_per_s"`
		GroupBytes int64   `json:"group_bytes"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &said); err != nil {
		return figure{}, fmt.Errorf("%s printed %q: %w", name, out, err)
	}
	return figure{groupsPerS: said.GroupsPerS, bytes: said.GroupBytes}, nil
}

// peerGroups is how many groups a queue of others is given: they are slower by far with
// small ones, and a rate needs no more.
func peerGroups(l load) int { return min(l.groups, 2000) }
