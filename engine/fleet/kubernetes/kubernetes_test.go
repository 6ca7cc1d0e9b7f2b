package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/kubernetes"
)

func driver(t *testing.T, url string, least int) *Driver {
	t.Helper()
	d, err := New(Options{Cluster: kubernetes.Cluster{URL: url}, Namespace: "rl", Workload: "statefulset/engines", Engines: 4, Least: least})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Engines come by more replicas and go by fewer, the highest first, in whatever order they are named.
func TestReplicasFollowTheWishes(t *testing.T) {
	c, url := newCluster(t, 1)
	d := driver(t, url, 1)
	for _, engine := range []int{0, 1, 2, 1} {
		if err := d.Start(t.Context(), engine); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for _, engine := range []int{1, 2} {
		all.Go(func() {
			if err := d.Stop(t.Context(), engine); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c.replicas != 1 || len(c.pods) != 1 || slices.Max(c.puts) != 3 {
		t.Errorf("%d replicas, pods %v, set to %v", c.replicas, c.pods, c.puts)
	}
	c.stays = true // until their containers have ended
	if err := errors.Join(d.Start(t.Context(), 3), d.Stop(t.Context(), 3), d.Stop(t.Context(), 0), d.Alive(t.Context(), 0), d.Close()); err != nil {
		t.Error(err)
	}
	if c.replicas != 1 {
		t.Errorf("%d replicas: the least is 1", c.replicas)
	}
}

// A driver that has just begun leaves alone what nothing was said of.
func TestADriverThatBegins(t *testing.T) {
	c, url := newCluster(t, 4)
	d := driver(t, url, 1)
	if err := d.Stop(t.Context(), 3); err != nil || c.replicas != 3 {
		t.Errorf("%d replicas, %v", c.replicas, err)
	}
	if err := errors.Join(d.Start(t.Context(), 0), d.Start(t.Context(), 2)); err != nil || c.replicas != 3 {
		t.Errorf("%d replicas, %v", c.replicas, err)
	}
	if err := d.Stop(t.Context(), 1); err != nil || c.replicas != 3 {
		t.Errorf("%d replicas, %v: engine 2 is wanted", c.replicas, err)
	}
	if err := d.Stop(t.Context(), 2); err != nil || c.replicas != 1 {
		t.Errorf("%d replicas, %v", c.replicas, err)
	}
}

// Where others change the scale too, or the API fails for a while, it is tried again.
func TestItTriesAgain(t *testing.T) {
	c, url := newCluster(t, 1)
	tries := 0
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		tries++
		switch tries {
		case 1:
			c.mu.Lock()
			c.scaleTo(2) // by somebody else
			c.mu.Unlock()
		case 2:
			problem(w, 500, "InternalError", "etcdserver: leader changed")
			return true
		}
		return false
	}
	if err := driver(t, url, 1).Start(t.Context(), 2); err != nil || c.replicas != 3 || tries != 3 {
		t.Errorf("%d replicas after %d tries, %v", c.replicas, tries, err)
	}
}

// An engine that the API does not let come, as with an exhausted quota, holds up nobody else.
func TestARefusedEngineHoldsUpNoOther(t *testing.T) {
	c, url := newCluster(t, 2)
	refused := make(chan struct{}, 1)
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut {
			return false
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		problem(w, 500, "InternalError", "etcdserver: leader changed")
		return true
	}
	d := driver(t, url, 0)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- d.Start(ctx, 3) }()
	<-refused
	if err := d.Stop(t.Context(), 1); err != nil || len(over) > 0 {
		t.Errorf("an engine that goes meanwhile: %v", err)
	}
	cancel()
	if err := <-over; err == nil {
		t.Error("the engine that could not come has come")
	}
}

// A request that the API never answers, as on a connection whose other end is gone, is made again.
func TestARequestWithoutAnAnswer(t *testing.T) {
	for _, lost := range []string{"GET scale", "PUT scale", "GET engines-2"} {
		c, url := newCluster(t, 1)
		method, what, _ := strings.Cut(lost, " ")
		over := make(chan struct{})
		var once sync.Once
		c.answer = func(_ http.ResponseWriter, r *http.Request) (hangs bool) {
			if r.Method == method && strings.HasSuffix(r.URL.Path, what) {
				once.Do(func() { hangs = true })
			}
			if hangs {
				<-over
			}
			return hangs
		}
		d := driver(t, url, 0)
		d.limit /= 100
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := d.Start(ctx, 2); err != nil || c.replicas != 3 {
			t.Errorf("%s is not answered once: %d replicas, %v", lost, c.replicas, err)
		}
		cancel()
		close(over)
	}
}

// What a pod waits for is said by whoever gives it up.
func TestPodsThatAreNotReady(t *testing.T) {
	for want, status := range map[string]map[string]any{
		"PodScheduled is false: Unschedulable 0/3 nodes have a free GPU": {"phase": "Pending", "conditions": []any{map[string]any{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have a free GPU"}}},
		"container vllm waits: ImagePullBackOff":                         {"phase": "Pending", "containerStatuses": []any{map[string]any{"name": "vllm", "state": map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff"}}}}},
		"started again 3 times, last after OOMKilled, exit code 137":     {"containerStatuses": []any{map[string]any{"name": "vllm", "restartCount": 3, "lastState": map[string]any{"terminated": map[string]any{"reason": "OOMKilled", "exitCode": 137}}}}},
		"phase Pending": {"phase": "Pending"},
	} {
		c, url := newCluster(t, 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		c.ready = func(string) map[string]any { return status }
		looks := 0
		c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/pods/") {
				if looks++; looks == 3 {
					cancel(errors.New("the test waits no more"))
				}
			}
			return false
		}
		err := driver(t, url, 0).Start(ctx, 0)
		if err == nil || !strings.Contains(err.Error(), "waits no more") {
			t.Error(err)
		}
		var p pod
		c.answer = nil
		if p, err = driver(t, url, 0).pod(t.Context(), 0); err != nil || !strings.Contains(p.why(), want) {
			t.Errorf("%q, %v, expected %q", p.why(), err, want)
		}
	}
}

// What may not be done, or is not there, is said with what to do.
func TestRefusals(t *testing.T) {
	c, url := newCluster(t, 1)
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			problem(w, 403, "Forbidden", `cannot update resource "statefulsets/scale"`)
		}
		return r.Method == http.MethodPut
	}
	if err := driver(t, url, 1).Start(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "deploy/kubernetes/fleet.yaml") {
		t.Error(err)
	}
	d, err := New(Options{Cluster: kubernetes.Cluster{URL: url}, Namespace: "rl", Workload: "leaderworkerset/engines", Engines: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "leaderworkersets engines in namespace rl") {
		t.Error(err)
	}
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		is := strings.Contains(r.URL.Path, "/pods/")
		if is {
			problem(w, 403, "Forbidden", `cannot get resource "pods"`)
		}
		return is
	}
	blind := driver(t, url, 0)
	if err := blind.Start(t.Context(), 0); err == nil || !strings.Contains(err.Error(), `"pods"`) {
		t.Error(err)
	}
	if err := blind.Stop(t.Context(), 0); err == nil || !strings.Contains(err.Error(), `"pods"`) {
		t.Error(err)
	}
	for workload, says := range map[string]string{"": "no workload", "deployment/a": "StatefulSet", "statefulset/": "no workload", "a/b/c": "no workload"} {
		if _, err := New(Options{Cluster: kubernetes.Cluster{URL: url}, Workload: workload}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", workload, err)
		}
	}
	if d, err := New(Options{Cluster: kubernetes.Cluster{URL: url}, Workload: "apps.kruise.io/v1beta1/statefulsets/a", Engines: 1}); err != nil || d.scalePath() != "/apis/apps.kruise.io/v1beta1/namespaces/default/statefulsets/a/scale" || d.Pod(3) != "a-3" {
		t.Errorf("%+v, %v", d, err)
	}
}

// A look changes nothing, and finds what is missing.
func TestCheck(t *testing.T) {
	c, url := newCluster(t, 2)
	found, err := driver(t, url, 1).Check(t.Context())
	if err != nil || found.Server != "v1.34.4" || found.Replicas != 2 || len(found.Missing) != 0 || len(found.Notes) != 2 || len(c.puts) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	c.denied["update statefulsets"] = true
	c.denied["get pods"] = true
	found, err = driver(t, url, 1).Check(t.Context())
	if want := []string{"update statefulsets/scale", "get pods"}; err != nil || !slices.Equal(found.Missing, want) {
		t.Errorf("%v, %v", found.Missing, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := driver(t, "http://127.0.0.1:1", 1).Check(ctx); err == nil {
		t.Error("nobody is there")
	}
}
