package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// cluster is a fake of the part of a Kubernetes API that the driver asks, by its documented behaviour: a scale
// has a resource version and refuses an older one, and a StatefulSet's controller makes pods up to the
// number of replicas and deletes the highest. Its pods are as ready as a test says.
type cluster struct {
	t *testing.T

	mu       sync.Mutex
	version  int
	replicas int
	pods     map[string]map[string]any
	// ready says what a new pod's status is; nil is ready at once. stays has pods that are deleted stay a while.
	ready func(name string) map[string]any
	stays bool
	// answer, where it is not nil, may answer a request in the cluster's place.
	answer func(w http.ResponseWriter, r *http.Request) bool
	denied map[string]bool
	puts   []int
}

func newCluster(t *testing.T, replicas int) (*cluster, string) {
	c := &cluster{t: t, version: 7, pods: map[string]map[string]any{}, denied: map[string]bool{}}
	c.scaleTo(replicas)
	front := httptest.NewServer(c)
	t.Cleanup(front.Close)
	return c, front.URL
}

func readyPod() map[string]any {
	return map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
}

// scaleTo is the workload's controller. c.mu is held, but at the start.
func (c *cluster) scaleTo(replicas int) {
	c.replicas = replicas
	c.version++
	for i := range replicas {
		name := fmt.Sprint("engines-", i)
		if c.pods[name] != nil {
			continue
		}
		status := readyPod()
		if c.ready != nil {
			status = c.ready(name)
		}
		c.pods[name] = map[string]any{"metadata": map[string]any{"name": name}, "status": status}
	}
	for name, pod := range c.pods {
		if number, _ := strconv.Atoi(strings.TrimPrefix(name, "engines-")); number < replicas {
			continue
		}
		if c.stays {
			pod["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-22T02:00:00Z"
		} else {
			delete(c.pods, name)
		}
	}
}

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(w http.ResponseWriter, code int, reason, message string) {
	write(w, code, map[string]any{"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.answer != nil && c.answer(w, r) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	const namespace = "/apis/apps/v1/namespaces/rl/statefulsets/engines"
	name, isPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/rl/pods/")
	switch {
	case isPod && c.pods[name] != nil:
		write(w, 200, c.pods[name])
	case isPod:
		problem(w, 404, "NotFound", fmt.Sprintf("pods %q not found", name))
	case r.URL.Path == namespace+"/scale" && r.Method == http.MethodGet:
		write(w, 200, c.scale())
	case r.URL.Path == namespace+"/scale" && r.Method == http.MethodPut:
		c.put(w, r)
	case r.URL.Path == namespace:
		write(w, 200, map[string]any{"spec": map[string]any{"podManagementPolicy": "OrderedReady", "ordinals": map[string]any{"start": 1}}})
	case r.URL.Path == "/version":
		write(w, 200, map[string]any{"gitVersion": "v1.34.4"})
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		c.review(w, r)
	default:
		problem(w, 404, "NotFound", "the server could not find the requested resource")
	}
}

func (c *cluster) scale() map[string]any {
	return map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "engines", "namespace": "rl", "resourceVersion": strconv.Itoa(c.version), "uid": "u"},
		"spec": map[string]any{"replicas": c.replicas}, "status": map[string]any{"replicas": c.replicas}}
}

func (c *cluster) put(w http.ResponseWriter, r *http.Request) {
	var s scale
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil || s.Kind != "Scale" || s.APIVersion != "autoscaling/v1" || s.Metadata.Name != "engines" || s.Metadata.UID != "u" {
		problem(w, 422, "Invalid", fmt.Sprintf("%+v, %v", s, err))
		return
	}
	if s.Metadata.ResourceVersion != strconv.Itoa(c.version) {
		problem(w, 409, "Conflict", "the object has been modified; please apply your changes to the latest version and try again")
		return
	}
	c.puts = append(c.puts, s.Spec.Replicas)
	c.scaleTo(s.Spec.Replicas)
	write(w, 200, c.scale())
}

func (c *cluster) review(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Spec struct{ ResourceAttributes map[string]string }
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		problem(w, 400, "BadRequest", err.Error())
		return
	}
	a := review.Spec.ResourceAttributes
	write(w, 201, map[string]any{"status": map[string]any{"allowed": !c.denied[a["verb"]+" "+a["resource"]] && a["namespace"] == "rl"}})
}
