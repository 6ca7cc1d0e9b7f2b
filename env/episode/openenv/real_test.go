package openenv

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// server starts one of the environments of testdata/server.py, with the Python that
// HEADWAY_ENVIRONMENTS_PYTHON names: one that has what testdata/requirements.txt asks for.
func server(t *testing.T, kind string) string {
	t.Helper()
	python := os.Getenv("HEADWAY_ENVIRONMENTS_PYTHON")
	if python == "" {
		t.Skip("HEADWAY_ENVIRONMENTS_PYTHON names no Python that has OpenEnv (make test-engines installs one)")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	listener.Close()
	command := exec.Command(python, filepath.Join("testdata", "server.py"), kind, port)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = command.Wait(); close(exited) }()
	t.Cleanup(func() { _ = command.Process.Kill(); <-exited; log.Close() })
	awaitHealth(t, "http://"+address, exited, log.Name())
	return "http://" + address
}

// awaitHealth asks until the server answers; its imports take seconds.
func awaitHealth(t *testing.T, url string, exited <-chan struct{}, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			return
		}
		select {
		case <-again.C:
		case <-exited:
			text, _ := os.ReadFile(log)
			t.Fatalf("the OpenEnv server ended: %s", text)
		case <-ctx.Done():
			t.Fatal(fmt.Errorf("the OpenEnv server does not answer: %w", ctx.Err()))
		}
	}
}
