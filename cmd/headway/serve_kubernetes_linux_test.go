package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/kubernetes/kubernetestest"
)

// applyDeployed makes a namespace as deploy/ has it, and the objects of files in it.
func applyDeployed(t *testing.T, c *kubernetestest.ControlPlane, files ...string) {
	t.Helper()
	c.Apply(t, "", deployDir+"kubernetes/namespace.yaml", nil)
	for _, file := range files {
		c.Apply(t, "headway", deployDir+"kubernetes/"+file, nil)
	}
}

// labelled is a pod with its labels.
type labelled struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
}

// TestDeployedOnAControlPlane: a real API server takes all manifests, without a field that it does not know. Its controllers make all
// pods, which a namespace that is restricted admits. NATS hears those with a cell, and no engine without.
func TestDeployedOnAControlPlane(t *testing.T) {
	c := kubernetestest.Start(t)
	applyDeployed(t, c, "nats.yaml", "control-plane.yaml", "workers.yaml", "network.yaml", "cells.yaml", "fleet.yaml")
	pods := func(want ...string) (list []labelled) {
		t.Helper()
		kubernetestest.Until(t, "all pods", func() error {
			var found struct{ Items []labelled }
			c.Do(t, http.MethodGet, "/api/v1/namespaces/headway/pods", nil, &found)
			var names []string
			for _, p := range found.Items {
				names = append(names, p.Metadata.Name)
			}
			for _, name := range want {
				if !slices.ContainsFunc(names, func(n string) bool { return n == name || strings.HasSuffix(name, "-") && strings.HasPrefix(n, name) }) {
					return fmt.Errorf("no %s among %q", name, names)
				}
			}
			list = found.Items
			return nil
		})
		return list
	}
	heard := func(name string, list []labelled) bool {
		t.Helper()
		var policy struct {
			Spec struct {
				Ingress []struct {
					From []struct {
						PodSelector struct{ MatchLabels map[string]string }
					}
				}
			}
		}
		c.Do(t, http.MethodGet, "/apis/networking.k8s.io/v1/namespaces/headway/networkpolicies/headway-nats", nil, &policy)
		pod := list[slices.IndexFunc(list, func(p labelled) bool { return p.Metadata.Name == name })]
		for _, from := range policy.Spec.Ingress[0].From {
			for label, value := range from.PodSelector.MatchLabels {
				if pod.Metadata.Labels[label] == value {
					return true
				}
			}
		}
		return false
	}
	list := pods("headway-nats-0", "headway-nats-2", "headway-workers-", "cell-0", "cell-1", "engines-0")
	kubernetestest.Until(t, "two control planes", func() error {
		var found struct{ Items []labelled }
		c.Do(t, http.MethodGet, "/api/v1/namespaces/headway/pods", nil, &found)
		planes := 0
		for _, p := range found.Items {
			if p.Metadata.Labels["app"] == "headway" {
				planes++
			}
		}
		if planes != 2 {
			return fmt.Errorf("%d", planes)
		}
		return nil
	})
	if !heard("cell-1", list) || heard("engines-0", list) {
		t.Errorf("NATS hears a cell: %t; an engine without one: %t", heard("cell-1", list), heard("engines-0", list))
	}
	c.Patch(t, "headway", deployDir+"kubernetes/fleet-cells.yaml")
	c.Do(t, http.MethodPatch, "/apis/apps/v1/namespaces/headway/statefulsets/engines/scale", kubernetestest.Object{"spec": kubernetestest.Object{"replicas": 2}}, nil)
	if list = pods("engines-1"); !heard("engines-1", list) {
		t.Error("NATS does not hear an engine with a cell")
	}
}

// kubelet plays the one machine of a cluster: the engine and the cell of a pod are programs here.
type kubelet struct {
	t    *testing.T
	c    *kubernetestest.ControlPlane
	dir  string // of the document and the runs
	port string // of engine 0, without its last digit

	mu   sync.Mutex
	pods map[string][]*exec.Cmd
}

// ready starts the programs of a pod, and says whether its engine answers.
func (k *kubelet) ready(pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	port := k.port + strings.TrimPrefix(pod, "engines-")
	if k.pods[pod] == nil {
		engine, err := os.Executable()
		if err != nil {
			k.t.Error(err)
			return false
		}
		cell, played := k.start(program(k.t), k.arguments(pod)...), k.start(engine, port)
		if cell == nil || played == nil {
			return false
		}
		k.pods[pod] = []*exec.Cmd{cell, played}
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// arguments of a pod's cell: those of its manifest, by the names that things have here.
func (k *kubelet) arguments(pod string) []string {
	var p struct {
		Spec struct {
			InitContainers []struct{ Args []string }
		}
	}
	k.c.Do(k.t, http.MethodGet, "/api/v1/namespaces/headway/pods/"+pod, nil, &p)
	here := strings.NewReplacer("$(POD)", pod, "/etc/headway/headway.yaml", filepath.Join(k.dir, "run.yaml"), "/runs", filepath.Join(k.dir, "runs"),
		"/etc/headway/tokens/tokens", filepath.Join(k.dir, "tokens"), "main", "r")
	arguments := slices.Clone(p.Spec.InitContainers[0].Args)
	for i, a := range arguments {
		if arguments[i] = here.Replace(a); a == ":7070" { // where all pods are one machine
			arguments[i] = "127.0.0.1:0"
		}
	}
	return arguments
}

// start starts a program, nil where it cannot be.
func (k *kubelet) start(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(name, arguments...)
	cmd.SysProcAttr = withTheTest
	if err := cmd.Start(); err != nil {
		k.t.Error(err)
		return nil
	}
	return cmd
}

// ended stops the programs of a pod, and says that they are gone.
func (k *kubelet) ended(pod string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, cmd := range k.pods[pod] {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	}
	delete(k.pods, pod)
	return true
}

// kill kills the cell of a pod, or its engine, and starts it again.
func (k *kubelet) kill(pod string, program int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.pods[pod][program]
	if err := old.Process.Kill(); err != nil {
		k.t.Fatal(err)
	}
	_ = old.Wait()
	if again := k.start(old.Path, old.Args[1:]...); again != nil {
		k.pods[pod][program] = again
	}
}

func (k *kubelet) stop() {
	for pod := range k.pods {
		k.ended(pod)
	}
}

// fleetOfPodsDocument is a run whose fleet is a StatefulSet of engines with cells.
const fleetOfPodsDocument = `
model: {path: %s}
store: {samples_every: 0, nats: {listen: %q, writer_s: 1}}
engines: [{kind: vllm, slots: 4, url: "http://127.0.0.1:%s{index}", cell: "engines-{index}"}]
fleet: {driver: kubernetes, workload: statefulset/engines, most: 2, config: %q}
environment: {kind: tasks, prompt_tokens_max: 3072, response_tokens_max: 512, tasks: {file: %s}}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
failures: {max_attempts: 20}
`

// decade is the beginning of two free ports that differ in their last digit, which is the engine's number.
func decade(t *testing.T) string {
	t.Helper()
	for first := 2_000 + os.Getpid()%500; first < 3_000; first++ {
		free := true
		for i := range 2 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d%d", first, i))
			if free = free && err == nil; err == nil {
				_ = l.Close()
			}
		}
		if free {
			return fmt.Sprint(first)
		}
	}
	t.Fatal("no two ports are free")
	return ""
}

// TestServeOnAControlPlane: a run asks a real API server for its engines. Each pod has the engine and its cell, as fleet-cells.yaml has it.
// A second comes, its cell is killed, and it leaves and comes again. The ledger balances, and the run replays.
func TestServeOnAControlPlane(t *testing.T) {
	c := kubernetestest.Start(t)
	applyDeployed(t, c, "fleet.yaml")
	c.Patch(t, "headway", deployDir+"kubernetes/fleet-cells.yaml")
	t.Setenv(fleetScripted, "1")
	const steps = 10
	k := &kubelet{t: t, c: c, dir: t.TempDir(), port: decade(t), pods: map[string][]*exec.Cmd{}}
	if err := os.WriteFile(filepath.Join(k.dir, "tokens"), []byte("environment a-token-of-workers-that-nobody-uses\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := c.Kubeconfig(t, "headway", kubernetestest.Object{"token": c.Token(t, "headway", "headway")}, "headway")
	s := startServe(t, k.dir, fmt.Sprintf(fleetOfPodsDocument, scriptedModel(t), freeAddress(t), k.port, config, taskFile(t), steps), "--json")
	t.Cleanup(k.stop)
	c.Play(t, kubernetestest.Node{Ready: k.ready, Ended: k.ended})

	s.connect()
	s.steps(2)
	s.serving(0, 1)
	s.wantEngines(`{"value":2}`, http.StatusOK)
	s.serving(1, 1)
	s.steps(2)
	k.kill("engines-1", 0)
	s.steps(2)
	s.wantEngines(`{"value":1}`, http.StatusOK)
	s.engineIs(1, "given back", func(e protocol.Engine) bool { return e.State == "away" && e.Started.State == "away" })
	s.steps(2)
	s.wantEngines(`{"value":2}`, http.StatusOK)
	s.serving(1, 2)
	s.steps(steps - 8)
	s.trained(8 * steps)
}
