package parts

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// More rollouts at once than the machine has memory or descriptors for are refused by their key, with the
// number that it carries, before anything is made for them.
func TestConcurrencyIsCarried(t *testing.T) {
	parts := func(settings ...string) *Parts {
		t.Helper()
		cfg, err := config.Load("", settings...)
		if err != nil {
			t.Fatal(err)
		}
		return &Parts{Cfg: cfg}
	}
	cfg := parts("rollout.concurrency=16777216").Cfg // a tebibyte
	if _, err := New(cfg, "", RunRules(cfg), nil); err == nil || !strings.Contains(err.Error(), "rollout.concurrency") || !strings.Contains(err.Error(), "at most ") {
		t.Errorf("sixteen million rollouts in one engine: %v", err)
	}
	cfg = parts("rollout.concurrency=1000").Cfg
	p, err := New(cfg, "", RunRules(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.carriesSlots(64 << 20); err == nil || !strings.Contains(err.Error(), "64 MiB of memory") {
		t.Errorf("a thousand in 64 MiB: %v", err)
	}
	if err := p.carriesSlots(1 << 30); err != nil {
		t.Errorf("a thousand in 1 GiB: %v", err)
	}
	if err := p.carriesConnections(1024); err == nil || !strings.Contains(err.Error(), "ulimit -n") || !strings.Contains(err.Error(), "at most 896,") {
		t.Errorf("a thousand over 1024 descriptors: %v", err)
	}
	for _, c := range []struct {
		settings    []string
		cell        string
		descriptors int
		want        int
		refused     string
	}{
		{nil, "", 512, 256, ""},
		{nil, "", 64, 64, ""},
		{[]string{"server.connections_max=300"}, "", 512, 300, ""},
		{[]string{"server.connections_max=500"}, "", 512, 0, "at most 384,"},
		{[]string{"server.connections_max=16"}, "", 64, 16, ""},
		{[]string{"engines.0.kind=vllm", "engines.0.url=http://127.0.0.1:1", "rollout.concurrency=200", "model.path=x"}, "", 512, 184, ""}, // those to the engine are beside it
		{[]string{"engines.0.kind=vllm", "engines.0.url=http://127.0.0.1:1", "engines.0.slots=200", "engines.1.kind=vllm", "engines.1.url=http://127.0.0.1:2", "engines.1.slots=100", "engines.1.cell=b", "store.nats.url=nats://n:4222", "model.path=x"}, "b", 400, 172, ""}, // those of the cell
	} {
		got, err := parts(c.settings...).ConnectionsMax(c.cell, c.descriptors)
		if got != c.want || (err == nil) != (c.refused == "") || err != nil && !(strings.Contains(err.Error(), "server.connections_max") && strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%q under %d descriptors: %d %v", c.settings, c.descriptors, got, err)
		}
	}
	if err := p.carriesConnections(20000); err != nil {
		t.Errorf("a thousand over 20000 descriptors: %v", err)
	}
}

// A policy that the machine has no memory for is refused by its key before anything is made for it.
func TestPolicyIsCarried(t *testing.T) {
	cfg, err := config.Load("", "model.width=16384", "model.layers=128") // terabytes
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, "", RunRules(cfg), nil); err == nil || !strings.Contains(err.Error(), "--set: model.width: 16384 makes a policy that is more than this machine carries") {
		t.Errorf("four hundred thousand million parameters: %v", err)
	}
	if cfg, err = config.Load(""); err != nil {
		t.Fatal(err)
	}
	p, err := New(cfg, "", RunRules(cfg), nil)
	if err != nil {
		t.Fatal(err)
	}
	count := int64(PolicyShape(cfg, p.Task).ParameterCount())
	if err := p.carriesPolicy(7 * 4 * count); err != nil {
		t.Errorf("six vectors of the trainer's and one engine's in as much: %v", err)
	}
	if err := p.carriesPolicy(7*4*count - 1); err == nil || !strings.Contains(err.Error(), "2 MiB of memory") {
		t.Errorf("in a byte less: %v", err)
	}
}
