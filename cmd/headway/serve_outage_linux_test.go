package main

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/api/protocol"
)

// natsServer is a NATS server with a port, which can go away and come back with what it had.
type natsServer struct {
	t       *testing.T
	options server.Options
	server  *server.Server
}

func (n *natsServer) start() {
	n.t.Helper()
	o := n.options
	s, err := server.NewServer(&o)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		n.t.Fatal("the NATS server does not start")
	}
	n.options.Port, n.server = s.Addr().(*net.TCPAddr).Port, s
}

func (n *natsServer) stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}

// NATS is away for longer than a claim lasts: whoever holds one is told to come again, and still has it when the
// control plane can write again.
func TestClaimsOutlastAnOutageOfNATS(t *testing.T) {
	n := newNATSServer(t)
	policy := policyServer(t, true)
	engine := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 8}", policy.URL())
	s := startServe(t, t.TempDir(), fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engine, 3),
		"--nats", n.server.ClientURL(), "--set", "store.nats.writer_s=3", "--set", "server.claim_s=1.5")
	claim := s.claim()
	n.stop()
	// The lease lasts twice as long as a claim.
	if !s.until("do not run out until this process can write again") || !s.until("the writer's lease could not be renewed for") {
		t.Fatal("nobody noticed that NATS is gone")
	}
	n.start()
	touch := protocol.TouchRequest{Worker: "w", Secret: claim.Secret}
	if status := s.ask("/api/v1/rollouts/"+claim.ID+"/touch", touch, nil); status != http.StatusOK { // 503 until it is back
		t.Errorf("the claim is touched after the outage: %d", status)
	}
}
