package main

import (
	"bufio"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/engine/collective"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/engine/sglang"
	"github.com/headway-rl/headway/engine/upstream"
)

// readyPlane is a control plane of which nothing is asked but whether it is ready.
type readyPlane struct{ api.Plane }

func (readyPlane) Ready() error { return nil }

// distributed is a server that takes its weights from the Python client's sender, by a collective.
func distributed(t *testing.T, _ string) enginetest.Subject {
	meetings := collective.NewRendezvous(collective.RendezvousOptions{})
	t.Cleanup(meetings.Close)
	senders := collective.NewCoordinator(collective.Options{Meetings: meetings, Logf: t.Logf})
	server, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}, Meetings: meetings, Senders: senders})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(listener.Close)
	startSender(t, listener.URL)
	return enginetest.Subject{Dialect: func() upstream.Dialect { return sglang.New() }, Delivery: upstream.DeliveryDistributed, Sender: senders}
}

// startSender starts the process that has the two models' weights, and ends it with the test.
func startSender(t *testing.T, url string) {
	python, weights := os.Getenv("HEADWAY_TEST_PYTHON"), directories(t)
	if python == "" {
		t.Fatal("HEADWAY_TEST_PYTHON is to name a Python with torch")
	}
	cmd := exec.Command(python, "models/send.py", url, weights[0], weights[1], fmt.Sprint(enginetest.VersionsMax(switches)))
	cmd.Env = append(os.Environ(), "PYTHONPATH=../../../../clients/python/src")
	var log strings.Builder
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		_ = in.Close()
		defer time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the sender ended with %v: %s", err, log.String())
		}
	})
	if err != nil || strings.TrimSpace(said) != "sending" {
		t.Fatalf("the sender says %q, %v: %s", said, err, log.String())
	}
}
