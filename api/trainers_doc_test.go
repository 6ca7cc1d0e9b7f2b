package api_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/loop"
)

// The commands of docs/trainer.md, run in their order as a user would, do what it says.
func TestTrainerDocument(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	if help, err := exec.Command("curl", "--help", "all").Output(); err != nil || !strings.Contains(string(help), "--json") {
		t.Skip("no curl that knows --json")
	}
	text, err := os.ReadFile("../docs/trainer.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newSchool(t, api.Options{})
	dir := t.TempDir()
	s.must(os.WriteFile(dir+"/optimizer.bin", []byte("pickled"), 0o644))
	lease, version := loop.LeaseID(1), loop.Version(0)
	out := s.offer(lease, version, 2)
	take := `curl -sf $HEADWAY/batches/lease --json '{"trainer": "a", "wait_s": 60}' -o batch.safetensors` + "\n"
	for i, block := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		head := fmt.Sprintf("set -e\nHEADWAY=%s LEASE=%d VERSION=%d NEXT=%d\n", strings.TrimSuffix(s.url, "/"), lease, version, version+1)
		if i == 0 {
			head = "HEADWAY=" + strings.TrimSuffix(s.url, "/api/v1/") + "\n"
			block += `test $HEADWAY = ` + strings.TrimSuffix(s.url, "/")
		}
		if strings.Contains(block, "/ack") || strings.Contains(block, "$HEADWAY/weights \\") {
			block = take + block
		}
		command := exec.CommandContext(t.Context(), shell, "-c", head+block)
		command.Dir = dir
		reply, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v: %s", block, err, reply)
		}
		switch {
		case strings.Contains(block, "/nack"):
			<-out // it went back: the loop leases the groups anew
			lease++
			out = s.offer(lease, version, 2)
		case strings.Contains(block, "$HEADWAY/weights \\"):
			if err := <-out; err != nil || !strings.Contains(string(reply), `{"version":1,"existing":false}`) {
				t.Fatalf("publish: %v: %s", err, reply)
			}
			lease, version = lease+1, version+1
			out = s.offer(lease, version, 2)
		case strings.Contains(block, "/ack"):
			if !strings.Contains(string(reply), "version 2 goes to the engines (every 1)") {
				t.Fatalf("ack: %s", reply)
			}
		}
	}
	if version != 1 {
		t.Fatalf("the document leads to version %d, want 1", version)
	}
}
