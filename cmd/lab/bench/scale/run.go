package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
)

// document is a run whose engines are all in cells, whose queue takes whatever is scored: no trainer asks.
const document = `
model: {path: %q}
store: {samples_every: 0, nats: {url: %q, replicas: %d}}
engines:
%senvironment: {kind: remote, name: bench, prompt_tokens_max: 32, response_tokens_max: 100000}
trainer: {kind: remote}
rollout: {group_size: 8}
train: {batch: 64}
queue: {policy: drop, factor: 1000}
server: {claim_s: 600}
failures: {max_attempts: 1}
`

// run is a control plane with cells, each of which has an engine and agents in a process of its own.
type run struct {
	dir, program, file string
	servers            []*server.Server
	options            []*server.Options
	plane              *plane.Plane
	cells              []*cell
}

// cell is a process of a cell.
type cell struct {
	name, address string
	cmd           *exec.Cmd
	said          *bytes.Buffer
	players       *players
}

// begin starts a run of so many cells, which have so many slots together, with so many NATS servers.
func begin(program string, cells, slots, servers int) (r *run, err error) {
	r = &run{program: program}
	defer func() {
		if err != nil {
			r.end()
		}
	}()
	if r.dir, err = os.MkdirTemp("", "headway-scale-"); err != nil {
		return r, err
	}
	if err = r.startServers(servers); err != nil {
		return r, err
	}
	model := filepath.Join(r.dir, "model")
	if err = plane.WriteModel(model); err != nil {
		return r, err
	}
	var engines strings.Builder
	for i := range cells {
		c := &cell{name: fmt.Sprintf("c%d", i)}
		if c.players, err = startPlayers(); err != nil {
			return r, err
		}
		r.cells = append(r.cells, c)
		port, err := plane.FreePort()
		if err != nil {
			return r, err
		}
		c.address = "127.0.0.1:" + strconv.Itoa(port)
		fmt.Fprintf(&engines, "  - {kind: vllm, url: %q, name: e%d, slots: %d, weights: none, cell: %s}\n", c.players.count().Engine, i, slots/cells, c.name)
	}
	var urls []string
	for _, s := range r.servers {
		urls = append(urls, s.ClientURL())
	}
	r.file = filepath.Join(r.dir, "run.yaml")
	if err = os.WriteFile(r.file, fmt.Appendf(nil, document, model, strings.Join(urls, ","), servers, engines.String()), 0o644); err != nil {
		return r, err
	}
	if err = r.startPlane(); err != nil {
		return r, err
	}
	for _, c := range r.cells {
		if err = r.startCell(c); err != nil {
			return r, err
		}
	}
	return r, nil
}

// startServers starts NATS servers in this process, so that the control plane's processor time is its own.
func (r *run) startServers(n int) error {
	ports := make([]int, n)
	var routes []string
	for i := range ports {
		port, err := plane.FreePort()
		if err != nil {
			return err
		}
		ports[i] = port
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i := range n {
		o := &server.Options{ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(r.dir, "nats", strconv.Itoa(i)), NoLog: true, NoSigs: true,
			JetStreamMaxStore: 1 << 40}
		if n > 1 {
			client, err := plane.FreePort()
			if err != nil {
				return err
			}
			o.Port, o.Cluster = client, server.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		r.options = append(r.options, o)
		r.servers = append(r.servers, nil)
		if err := r.startServer(i); err != nil {
			return err
		}
	}
	for _, s := range r.servers {
		if !s.ReadyForConnections(time.Minute) {
			return errors.New("a NATS server does not come up")
		}
	}
	for began := time.Now(); n > 1 && !r.elected(); time.Sleep(again) {
		if time.Since(began) > time.Minute {
			return errors.New("the NATS servers elect no leader")
		}
	}
	return nil
}

func (r *run) startServer(i int) error {
	s, err := server.NewServer(r.options[i])
	if err != nil {
		return err
	}
	go s.Start()
	r.servers[i] = s
	return nil
}

func (r *run) elected() bool {
	for _, s := range r.servers {
		if s.JetStreamIsLeader() {
			return true
		}
	}
	return false
}

// startPlane starts the control plane, at first or again.
func (r *run) startPlane() (err error) {
	r.plane, err = plane.Start(r.program, r.dir, r.file)
	return err
}

// startCell starts a cell, at first or again, and returns when it plays.
func (r *run) startCell(c *cell) error {
	c.said = new(bytes.Buffer)
	c.cmd = exec.Command(r.program, "cell", c.name, r.file, "--dir", r.dir, "--name", "bench", "--listen", c.address)
	c.cmd.Stderr = c.said
	plane.Own(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if res, err := http.Get("http://" + c.address + "/readyz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	c.kill()
	return fmt.Errorf("cell %s does not come up: %.2000s", c.name, c.said.String())
}

func (c *cell) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// end ends all, and removes what was written.
func (r *run) end() {
	for _, c := range r.cells {
		if c.players != nil {
			c.players.stop()
		}
		if c.cmd != nil && c.cmd.ProcessState == nil {
			c.kill()
		}
	}
	if r.plane != nil {
		r.plane.Stop()
	}
	for _, s := range r.servers {
		if s != nil {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	_ = os.RemoveAll(r.dir)
}

// open has agents play at all cells, and returns when so many streams are open at once.
func (r *run) open(streams, events int, pause time.Duration, within time.Duration) error {
	for _, c := range r.cells {
		if err := c.players.orders.Encode(order{URL: "http://" + c.address, Agents: streams / len(r.cells), Events: events, Pause: pause}); err != nil {
			return err
		}
	}
	for began := time.Now(); ; time.Sleep(countEvery) {
		n := r.counts().Active
		if n >= int64(streams)*19/20 { // some have just ended
			return nil
		}
		if time.Since(began) > within {
			return fmt.Errorf("%d of %d streams are open after %v; calls were refused: %s", n, streams, within, r.counts().Why)
		}
	}
}

// counts adds up what all players have done.
func (r *run) counts() (sum count) {
	for _, c := range r.cells {
		n := c.players.count()
		sum.Active += n.Active
		sum.Tokens += n.Tokens
		sum.Rollouts += n.Rollouts
		sum.Uncounted += n.Uncounted
		sum.Gone += n.Gone
		sum.Refused += n.Refused
		sum.Cut += n.Cut
		sum.CutTokens += n.CutTokens
		sum.Why = cmp.Or(n.Why, sum.Why)
		sum.Claims = append(sum.Claims, n.Claims...)
		sum.P99 = max(sum.P99, n.P99)
	}
	return sum
}
