package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// refuses requires that a call is refused with a status and a text.
func (s *served) refuses(status int, text, path string, body []byte, header ...string) {
	s.t.Helper()
	if code, said := s.call(path, "application/json", body, header...); code != status || !strings.Contains(string(said), text) {
		s.t.Errorf("%s: %d %s, want %d and %q", path, code, said, status, text)
	}
}

// Workers claim where rollouts play: at the control plane, and at a cell. An agent of the cell goes on while the control plane is
// away, and its rollout counts when it is back.
func TestWorkersOfACell(t *testing.T) {
	n := newNATSServer(t)
	const steps = 4
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	document := fmt.Sprintf(cellsDocument, scriptedModel(t), n.server.ClientURL(), a.url, b.url, "remote", steps)
	s := startServe(t, dir, document, "--json")
	startCell(t, dir, "b").ends(2, "environment.kind")
	startCell(t, dir, "b", "--url", "http://b:7071").ends(2, "give --listen as well")
	startCell(t, dir, "b", "--listen", "127.0.0.1:0", "--url", "b:7071").ends(2, "want http://HOST:PORT")
	startCell(t, dir, "b", "--listen", "0.0.0.0:0").ends(2, "no token is asked for")
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("environment worker-token-of-b-0123456789\nadmin admin-token-of-b-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startCell(t, dir, "b", "--listen", "127.0.0.1:0", "--url", "http://cell-b:7071", "--token-file", tokens)
	c.token = "worker-token-of-b-0123456789"
	c.says("the run has it join")

	own := c.claim()
	if own.URL != "http://cell-b:7071" {
		t.Errorf("the claim of the cell names the address %q", own.URL)
	}
	if claim := s.claim(); claim.URL != "" {
		t.Errorf("the claim of the control plane names the address %q", claim.URL)
	} else {
		c.refuses(http.StatusGone, "the key is of no claim", "/v1/chat/completions", []byte(`{"messages":[{"role":"user","content":"a"}]}`), "Authorization", "Bearer "+claim.Key)
		s.finish(claim)
	}
	c.refuses(http.StatusNotFound, "this is cell b of the run", "/api/v1/trainers/connect", []byte(`{"trainer":"t"}`), "Authorization", "Bearer admin-token-of-b-0123456789")
	if status := c.status(); status.Cell != "b" || status.State != "running" || status.Workers.Claimed != 1 || len(status.Engines) != 1 || status.Engines[0].Server == nil {
		t.Errorf("the status of the cell is %+v", status)
	}
	if code, text := c.call("/metrics", "", nil); code != http.StatusOK || !strings.Contains(string(text), "headway_rollouts_claimed 1") || strings.Contains(string(text), "headway_ledger_balanced") {
		t.Errorf("the metrics of the cell: %d\n%s", code, text)
	}
	if code, text := c.chat(own.Key); code != http.StatusOK {
		t.Errorf("an agent of the cell: %d %s", code, text)
	}
	shown := exec.Command(program(t), "status", c.url)
	shown.Env = append(os.Environ(), "HEADWAY_TOKEN="+c.token)
	if text, err := shown.CombinedOutput(); err != nil || !strings.Contains(string(text), "b of the run r · running") || !strings.Contains(string(text), "workers    1 known") {
		t.Errorf("headway status of the cell: %v\n%s", err, text)
	}
	s.kill()
	if code, text := c.chat(own.Key); code != http.StatusOK {
		t.Errorf("an agent of the cell without a control plane: %d %s", code, text)
	}
	var counted protocol.FinishReply
	var playing sync.WaitGroup
	playing.Go(func() { counted = c.finish(own) })
	s = startServe(t, dir, document, "--json")
	playing.Wait()
	if !counted.Counted {
		t.Errorf("the rollout that an agent of the cell played while the control plane was away: %+v", counted)
	}
	playing.Go(s.play)
	playing.Go(c.play)
	s.train(steps)
	status := s.outcome(&playing)
	<-c.over
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	c.ends(0, "the run has made all of its train steps")
	if !status.Ledger.Balanced || status.Ledger.Trained != 8*steps || status.Failures.Other > 0 {
		t.Errorf("the ledger is %+v after the failures %+v", status.Ledger, status.Failures)
	}

	alone := strings.Replace(document, "slots: 4}\n", "slots: 4, cell: c}\n", 1)
	s = startServe(t, dirBeside(t, t.TempDir(), alone), alone, "--name", "alone")
	s.refuses(http.StatusBadRequest, "all engines of this run are in cells (c, b)", "/api/v1/rollouts/claim", []byte(`{"worker":"w"}`))
}

// finish ends a rollout with a reward.
func (s *served) finish(c protocol.Claim) (reply protocol.FinishReply) {
	s.t.Helper()
	s.ask("/api/v1/rollouts/"+c.ID+"/finish", protocol.FinishRequest{Worker: "w", Secret: c.Secret, Reward: new(float32(1))}, &reply)
	return reply
}

// A cell that was killed goes on at once, though its server answers nothing: the process before may have left it paused.
func TestCellIsKilledAtAServerThatHangs(t *testing.T) {
	n := newNATSServer(t)
	const steps = 1
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	behind, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy, hangs := httputil.NewSingleHostReverseProxy(behind), atomic.Pointer[chan struct{}]{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if until := hangs.Load(); until != nil && r.Method == http.MethodPost {
			select {
			case <-*until:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	s := startServe(t, dir, fmt.Sprintf(cellsDocument, scriptedModel(t), n.server.ClientURL(), a.url, front.URL, "remote", steps), "--json")
	c := startCell(t, dir, "b", "--listen", "127.0.0.1:0")
	c.says("the run has it join")
	own := c.claim()
	if code, text := c.chat(own.Key); code != http.StatusOK {
		t.Fatalf("an agent of the cell: %d %s", code, text)
	}
	answers := make(chan struct{})
	hangs.Store(&answers)
	c.kill()
	c = startCell(t, dir, "b", "--listen", "127.0.0.1:0")
	c.says("engine b has not said what it can, and joins when it does")
	c.says("1 of 4 rollouts that were under way go on from their turns")
	c.ready()
	close(answers)
	if code, text := c.chat(own.Key); code != http.StatusOK {
		t.Errorf("an agent of the cell: %d %s", code, text)
	}
	if counted := c.finish(own); !counted.Counted {
		t.Errorf("the rollout that the killed cell had begun: %+v", counted)
	}
	var playing sync.WaitGroup
	playing.Go(s.play)
	playing.Go(c.play)
	s.train(steps)
	if status := s.outcome(&playing); !status.Ledger.Balanced {
		t.Errorf("the ledger is %+v", status.Ledger)
	}
	<-c.over
}
