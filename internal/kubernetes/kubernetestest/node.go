//go:build linux

package kubernetestest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/kubernetes"
)

// Node plays a cluster's scheduler and the kubelet of its one machine. It binds pods, says whether they are ready, and
// lets go of those that are deleted. Each of its answers is nil for yes.
type Node struct {
	// Room says whether a pod is given to the machine. Ready says whether the programs in it answer, which is asked
	// until the pod is gone. Ended says whether a deleted pod's containers have ended.
	Room, Ready, Ended func(pod string) bool
}

// Pod is what the node and its tests read of a pod.
type Pod struct {
	Metadata struct {
		Name, Namespace, UID string
		Deleted              string `json:"deletionTimestamp"`
	}
	Spec   struct{ NodeName string }
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

func (p *Pod) condition(kind string) string {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// Play has a node be there until the test ends.
func (c *ControlPlane) Play(t testing.TB, n Node) {
	t.Helper()
	c.Do(t, http.MethodPost, "/api/v1/nodes", Object{"metadata": Object{"name": "machine"}}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var playing sync.WaitGroup
	playing.Go(func() {
		ticks := time.NewTicker(100 * time.Millisecond)
		defer ticks.Stop()
		for {
			for _, p := range c.Pods(ctx) {
				if err := n.play(ctx, c.Admin, p); err != nil && ctx.Err() == nil && !Is(err, kubernetes.NotFound) && !Is(err, kubernetes.Conflict) {
					t.Errorf("the node, of pod %s: %v", p.Metadata.Name, err)
				}
			}
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); playing.Wait() })
}

// Pods are those of all namespaces; none where the API does not answer.
func (c *ControlPlane) Pods(ctx context.Context) []Pod {
	var list struct{ Items []Pod }
	_ = c.Admin.Do(ctx, kubernetes.Request{Method: http.MethodGet, Path: "/api/v1/pods"}, &list)
	return list.Items
}

func says(answer func(string) bool, pod string) bool { return answer == nil || answer(pod) }

// play does for one pod what is to be done next.
func (n *Node) play(ctx context.Context, api *kubernetes.API, p Pod) error {
	name := p.Metadata.Name
	path := "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + name
	switch {
	case p.Metadata.Deleted != "":
		if !says(n.Ended, name) {
			return nil
		}
		body := Object{"gracePeriodSeconds": 0, "preconditions": Object{"uid": p.Metadata.UID}}
		return api.Do(ctx, kubernetes.Request{Method: http.MethodDelete, Path: path, Body: body}, nil)
	case p.Spec.NodeName == "" && says(n.Room, name):
		body := Object{"apiVersion": "v1", "kind": "Binding", "metadata": Object{"name": name}, "target": Object{"apiVersion": "v1", "kind": "Node", "name": "machine"}}
		return api.Do(ctx, kubernetes.Request{Method: http.MethodPost, Path: path + "/binding", Body: body}, nil)
	case p.Spec.NodeName == "":
		if p.condition("PodScheduled") == "False" {
			return nil
		}
		return n.report(ctx, api, p, Object{"phase": "Pending", "conditions": []Object{
			{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."},
		}})
	}
	ready := "False"
	if says(n.Ready, name) {
		ready = "True"
	}
	if p.condition("Ready") == ready {
		return nil
	}
	return n.report(ctx, api, p, Object{"phase": "Running", "conditions": []Object{
		{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready, "reason": "Probed"},
	}})
}

func (n *Node) report(ctx context.Context, api *kubernetes.API, p Pod, status Object) error {
	return api.Do(ctx, kubernetes.Request{
		Method: http.MethodPatch, Path: "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name + "/status",
		Body: Object{"metadata": Object{"uid": p.Metadata.UID}, "status": status}, Type: kubernetes.MergePatch,
	}, nil)
}
