package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/cmd/lab/bench/plane"
	"github.com/headway-rl/headway/cmd/lab/bench/played"
	"github.com/headway-rl/headway/cmd/lab/bench/python"
)

// open starts everything that can stand between, and says what cannot.
func open(e *played.Engine, streams int) (arms []*arm, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	none := func() error { return nil }
	through := func(url string) func() (string, http.Header, func() error, error) {
		return func() (string, http.Header, func() error, error) { return url, http.Header{}, none, nil }
	}
	arms = append(arms, &arm{name: "direct", prompt: ids, begin: through(e.URL())})
	dir, err := os.MkdirTemp("", "headway-gateway-")
	if err != nil {
		return nil, stop, err
	}
	stops = append(stops, func() { _ = os.RemoveAll(dir) })
	model := filepath.Join(dir, "model")
	if err := plane.WriteModel(model); err != nil {
		return nil, stop, err
	}
	ours, stopOurs, err := headway("", dir, e.URL(), model, streams)
	if err != nil {
		return nil, stop, err
	}
	stops = slices.Insert(stops, 0, stopOurs)
	arms = append(arms, ours)
	copier, stopCopier, err := copying(e)
	if err != nil {
		return nil, stop, err
	}
	stops = slices.Insert(stops, 0, stopCopier)
	arms = append(arms, &arm{name: "relay in Go", order: len(arms), pid: copier.pid, prompt: ids, begin: through(copier.url)})
	interpreter, err := python.Prepare("gateway", "the routers of vLLM and SGLang", "vllm_router, sglang_router")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return arms, stop, nil
	}
	for _, p := range []struct {
		name    string
		prompt  any
		command func(port, other string) []string
	}{
		{"vllm-router", ids, func(port, other string) []string {
			return []string{filepath.Join(filepath.Dir(interpreter), "vllm-router"), "--host", "127.0.0.1", "--port", port, "--worker-urls", e.URL(), "--policy", "round_robin", "--log-level", "error"}
		}},
		{"sglang router", "abc", func(port, other string) []string {
			return []string{interpreter, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", port, "--worker-urls", e.URL(), "--policy", "round_robin", "--log-level", "error", "--prometheus-port", other}
		}},
	} {
		port, err := plane.FreePort()
		other, err2 := plane.FreePort()
		if err := errors.Join(err, err2); err != nil {
			return arms, stop, err
		}
		url := fmt.Sprint("http://127.0.0.1:", port)
		cmd, err := start(p.command(strconv.Itoa(port), strconv.Itoa(other)), url+"/health")
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s does not come up, so not measured: %v\n", p.name, err)
			continue
		}
		stops = append(stops, func() { kill(cmd) })
		arms = append(arms, &arm{name: p.name, order: len(arms), pid: cmd.Process.Pid, prompt: p.prompt, begin: through(url)})
	}
	return arms, stop, nil
}

// ids is the prompt of every stream.
var ids = []int{3, 4, 5}

// start runs a program and waits until it answers.
func start(command []string, health string) (*exec.Cmd, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	plane.Own(cmd)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < 60*time.Second; time.Sleep(100 * time.Millisecond) {
		if res, err := http.Get(health); err == nil {
			res.Body.Close()
			if res.StatusCode/100 != 5 {
				return cmd, nil
			}
		}
	}
	kill(cmd)
	return nil, fmt.Errorf("%s does not answer: %.2000s", command[0], said.String())
}

// relayed is a relay that runs.
type relayed struct {
	pid int
	url string
}

// copying starts this program as a relay to the engine.
func copying(e *played.Engine) (relayed, func(), error) {
	program, err := os.Executable()
	if err != nil {
		return relayed{}, nil, err
	}
	cmd := exec.Command(program, "-relay", e.Address())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	plane.Own(cmd)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return relayed{}, nil, err
	}
	address, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		kill(cmd)
		return relayed{}, nil, fmt.Errorf("the relay does not say where it listens: %w", err)
	}
	return relayed{cmd.Process.Pid, "http://" + strings.TrimSpace(address)}, func() { kill(cmd) }, nil
}

func kill(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
}

// document is a run whose engine is this program, and whose queue takes whatever is scored.
const document = `
model: {path: %q}
engines: [{kind: vllm, url: %q, name: replayed, slots: %d, weights: none}]
environment: {kind: remote, name: bench, prompt_tokens_max: %d, response_tokens_max: %d}
trainer: {kind: remote}
rollout: {group_size: 8}
train: {batch: %d}
queue: {policy: drop, factor: 1000}
server: {claim_s: 600}
%s`

// raw turns on gateway.raw_io, for the flag -raw.
var raw bool

// rawIO is the document's setting of that, which programs of older commits do not know.
func rawIO() string {
	if raw {
		return "gateway: {raw_io: true}\n"
	}
	return ""
}

// promptMax is the longest prompt of the run; the rest of the model's context is the response's.
const promptMax = 32

// responseMax is what the model's context leaves.
func responseMax(model string) int {
	var shape struct {
		Context int `json:"max_position_embeddings"`
	}
	text, err := os.ReadFile(filepath.Join(model, "config.json"))
	if err != nil || json.Unmarshal(text, &shape) != nil {
		return 1 // serve says what is wrong with it
	}
	return max(shape.Context-promptMax, 1)
}

// headway starts headway serve in front of an engine that speaks vLLM's words: of a built program, or "" to build it.
func headway(program, dir, engine, model string, streams int) (*arm, func(), error) {
	file := filepath.Join(dir, "serve.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, document, model, engine, streams, promptMax, responseMax(model), streams, rawIO()), 0o644); err != nil {
		return nil, nil, err
	}
	serve := plane.Serve
	if program != "" {
		serve = func(dir string, arguments ...string) (*plane.Plane, error) {
			return plane.Start(program, dir, arguments...)
		}
	}
	p, err := serve(dir, file)
	if err != nil {
		return nil, nil, err
	}
	return &arm{name: "headway gateway", order: 1, prompt: ids, pid: p.PID, begin: func() (string, http.Header, func() error, error) { return claim(p.URL) }}, p.Stop, nil
}

// claim takes a rollout to play; its end gives it a reward.
func claim(url string) (string, http.Header, func() error, error) {
	var claims struct {
		Rollouts []struct{ ID, Key, Secret string }
	}
	if err := post(url+"/api/v1/rollouts/claim", map[string]any{"worker": "bench", "wait_s": 30}, &claims); err != nil {
		return "", nil, nil, err
	}
	if len(claims.Rollouts) != 1 {
		return "", nil, nil, errors.New("no rollout to claim")
	}
	c := claims.Rollouts[0]
	end := func() error {
		return post(url+"/api/v1/rollouts/"+c.ID+"/finish", map[string]any{"worker": "bench", "secret": c.Secret, "reward": 1}, nil)
	}
	return url, http.Header{"Authorization": {"Bearer " + c.Key}}, end, nil
}

func post(url string, body, reply any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	res, err := client.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.300s", url, res.Status, text)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(text, reply)
}
