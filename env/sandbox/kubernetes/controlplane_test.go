//go:build linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/internal/kubernetes/kubernetestest"
)

// definitions of agent-sandbox, of a version that has v1beta1 and of one that has v1alpha1 alone.
const (
	newer, newerSum = "sigs.k8s.io/agent-sandbox@v0.5.6", "h1:+lIxbO5MIPYqmnbv4eWZDm+bh9Y6qHvZ+qXEe4MJVkU="
	older, olderSum = "sigs.k8s.io/agent-sandbox@v0.1.0", "h1:eSZQB8v6G/CeX1oZE5cHJfTIJz16SSn3bDLL1fX6hoo="
)

// defined starts a control plane that knows agent-sandbox's resources, and returns a driver of it. The
// controller of agent-sandbox is not there: tests write the states that it would.
func defined(t *testing.T, module, sum string, o Options) (*kubernetestest.ControlPlane, *Driver) {
	t.Helper()
	c := kubernetestest.Start(t)
	c.Namespace(t, "boxes")
	o.Cluster = kubernetes.Cluster{Config: c.Kubeconfig(t, "maker", c.Certificate(t, "maker", "system:masters"), "boxes")}
	d := mustDriver(t, o)
	if _, err := d.Check(t.Context()); sandbox.ClassOf(err) != sandbox.BackendDown || !strings.Contains(err.Error(), "install agent-sandbox") {
		t.Errorf("no agent-sandbox: %v", err)
	}
	dir := kubernetestest.Module(t, module, sum) + "/k8s/crds/"
	for _, file := range []string{"agents.x-k8s.io_sandboxes", "extensions.agents.x-k8s.io_sandboxclaims", "extensions.agents.x-k8s.io_sandboxtemplates", "extensions.agents.x-k8s.io_sandboxwarmpools"} {
		c.Define(t, dir+file+".yaml")
	}
	return c, d
}

// valid has the server judge a box's resource, every field of which it must know, and keep nothing.
func valid(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, spec sandbox.Spec) error {
	t.Helper()
	r, err := d.resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	query := map[string]string{"dryRun": "All", "fieldValidation": "Strict"}
	return c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodPost, Path: d.path(r, ""), Query: query, Body: d.made(r, "a.1", spec)}, nil)
}

func TestClaimsOfAControlPlane(t *testing.T) {
	c, d := defined(t, newer, newerSum, Options{WarmPool: "pool"})
	if _, err := d.Check(t.Context()); sandbox.ClassOf(err) != sandbox.Lost || !strings.Contains(err.Error(), "pool") {
		t.Errorf("a warm pool that is not there: %v", err)
	}
	pool := object{"apiVersion": claims + "/v1beta1", "kind": "SandboxWarmPool", "metadata": object{"name": "pool"}, "spec": object{"replicas": 1, "sandboxTemplateRef": object{"name": "template"}}}
	r, err := d.resources(t.Context())
	if err != nil || r.version != "v1beta1" {
		t.Fatalf("%+v, %v", r, err)
	}
	c.Do(t, http.MethodPost, d.path(resource{claims, "v1beta1", "", "sandboxwarmpools"}, ""), pool, nil)
	if _, err := d.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := valid(t, c, d, sandbox.Spec{}); err != nil {
		t.Error(err)
	}
	t.Run("states", func(t *testing.T) { states(t, c, d, r) })
	t.Run("list", func(t *testing.T) { manyClaims(t, c, d, r) })
	t.Run("quota", func(t *testing.T) { claimsOverQuota(t, c, d, r) })
}

// state writes what agent-sandbox's controller would say of a claim, once the claim is there.
func state(t *testing.T, c *kubernetestest.ControlPlane, path string, status object) {
	t.Helper()
	kubernetestest.Until(t, "the claim is there", func() error {
		return c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodPatch, Path: path + "/status", Body: object{"status": status}, Type: kubernetes.MergePatch}, nil)
	})
}

func conditionOf(kind, status, reason string) []object {
	return []object{{"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}}
}

// A claim ends by its state, and is taken back; a pod on a machine without kubelet can run nothing.
func states(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, r resource) {
	for id, test := range map[sandbox.ID]struct {
		status object
		class  sandbox.Class
		says   string
	}{
		"a.1": {object{"conditions": conditionOf("Ready", "False", "WarmPoolNotFound")}, sandbox.StartFailed, "WarmPoolNotFound"},
		"a.2": {object{"conditions": conditionOf("Finished", "True", "PodFailed")}, sandbox.StartFailed, "PodFailed"},
		"a.3": {object{"conditions": conditionOf("Ready", "True", "Ready"), "sandbox": object{"name": "box"}}, sandbox.Lost, "no preferred addresses found"},
	} {
		if id == "a.3" {
			box := object{"apiVersion": agents + "/v1beta1", "kind": "Sandbox", "metadata": object{"name": "box", "annotations": object{podName: "pod"}}, "spec": d.podOnly()}
			c.Do(t, http.MethodPost, d.path(resource{agents, "v1beta1", "", "sandboxes"}, ""), box, nil)
			c.Play(t, kubernetestest.Node{})
			c.Do(t, http.MethodPost, "/api/v1/namespaces/boxes/pods", object{"metadata": object{"name": "pod"}, "spec": object{"containers": []object{{"name": "box", "image": "box"}}}}, nil)
			kubernetestest.Until(t, "the pod is ready", func() error {
				for _, p := range c.Pods(t.Context()) {
					if len(p.Status.Conditions) > 1 {
						return nil
					}
				}
				return errors.New("it is not")
			})
		}
		answered := make(chan error, 1)
		go func() {
			_, err := d.Create(t.Context(), id, sandbox.Spec{})
			answered <- err
		}()
		state(t, c, d.path(r, claimName(id)), test.status)
		if err := <-answered; sandbox.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, expected class %s and %q", id, err, test.class, test.says)
		}
		gone(t, c, d.path(r, claimName(id)))
	}
}

// podOnly is the spec of a Sandbox of one container.
func (d *Driver) podOnly() object {
	return object{"podTemplate": d.podTemplate(object{}, sandbox.Spec{Image: "box", Limits: sandbox.Limits{}.WithDefaults()})}
}

func gone(t *testing.T, c *kubernetestest.ControlPlane, path string) {
	t.Helper()
	kubernetestest.Until(t, path+" is gone", func() error {
		err := c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: path}, nil)
		if kubernetestest.Is(err, kubernetes.NotFound) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
}

// An owner's boxes are all found, on however many pages the server names them, and nobody else's.
func manyClaims(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, r resource) {
	const many = 510
	for i := range many {
		c.Do(t, http.MethodPost, d.path(r, ""), d.made(r, sandbox.ID(fmt.Sprintf("mine.%d", i)), sandbox.Spec{}), nil)
	}
	c.Do(t, http.MethodPost, d.path(r, ""), d.made(r, "others.1", sandbox.Spec{}), nil)
	ids, err := d.List(t.Context(), "mine")
	if err != nil || len(ids) != many {
		t.Errorf("%d boxes, %v", len(ids), err)
	}
	if err := errors.Join(d.Destroy(t.Context(), "mine.0"), d.Destroy(t.Context(), "mine.0"), d.Destroy(t.Context(), "never.1")); err != nil {
		t.Error(err)
	}
	gone(t, c, d.path(r, claimName("mine.0")))
	if ids, err = d.List(t.Context(), "others"); err != nil || len(ids) != 1 || ids[0] != "others.1" {
		t.Errorf("%v, %v", ids, err)
	}
	if _, err := d.Create(t.Context(), "others.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a box of that name is there: %v", err)
	}
}

// Where no more claims may be made, that is a quota's.
func claimsOverQuota(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, r resource) {
	const quotas = "/api/v1/namespaces/boxes/resourcequotas"
	c.Do(t, http.MethodPost, quotas, object{"metadata": object{"name": "few"}, "spec": object{"hard": object{"count/sandboxclaims." + claims: "1"}}}, nil)
	kubernetestest.Until(t, "the quota counts", func() error {
		var quota struct {
			Status struct{ Hard map[string]string }
		}
		c.Do(t, http.MethodGet, quotas+"/few", nil, &quota)
		if len(quota.Status.Hard) == 0 {
			return errors.New("no status")
		}
		return nil
	})
	if _, err := d.Create(t.Context(), "late.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Quota {
		t.Errorf("over the quota: %v", err)
	}
}

// A box without a warm pool: the server knows every field of it, and takes the pod that it describes.
func TestSandboxesOfAControlPlane(t *testing.T) {
	c, d := defined(t, newer, newerSum, Options{RuntimeClass: "gvisor"})
	spec := sandbox.Spec{Image: "python:3.13", Limits: sandbox.Limits{}.WithDefaults()}
	if err := valid(t, c, d, spec); err != nil {
		t.Error(err)
	}
	c.Do(t, http.MethodPost, "/apis/node.k8s.io/v1/runtimeclasses", object{"metadata": object{"name": "gvisor"}, "handler": "runsc"}, nil)
	pod := d.podTemplate(object{}, spec)
	pod["metadata"].(object)["name"] = "pod"
	query := map[string]string{"dryRun": "All", "fieldValidation": "Strict"}
	if err := c.Admin.Do(t.Context(), kubernetes.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/boxes/pods", Query: query, Body: pod}, nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := d.Create(ctx, "a.1", spec); !errors.Is(err, context.DeadlineExceeded) { // nobody makes its pod
		t.Error(err)
	}
	gone(t, c, d.path(d.resource, claimName("a.1")))
}

// A cluster of older words, and one that is too old: what its server leaves out is when a box is to end.
func TestOldClaimsOfAControlPlane(t *testing.T) {
	c, d := defined(t, newer, newerSum, Options{Template: "template"})
	if err := valid(t, c, d, sandbox.Spec{}); err != nil || d.resource.version != "v1alpha1" {
		t.Error(d.resource, err)
	}
	c, d = defined(t, older, olderSum, Options{WarmPool: "pool", Template: "template"})
	if _, err := d.Create(t.Context(), "a.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Refused || !strings.Contains(err.Error(), "v0.1.1") {
		t.Error(err)
	}
	gone(t, c, d.path(d.resource, claimName("a.1")))
}
