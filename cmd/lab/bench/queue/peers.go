package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// peer runs a queue of others over the same arrays.
func peer(python, name string, l load) (figure, error) {
	command := exec.Command(python, filepath.Join("cmd/lab/bench", "queue", "peer.py"), name,
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
