//go:build unix

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/sandboxtest"
	"github.com/headway-rl/headway/internal/kubernetes"
)

func mustDriver(t testing.TB, o Options) *Driver {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pods skips where no pod can be made: without bubblewrap, or without the right to enter what it made.
func pods(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("the fake cluster's pods need bubblewrap (apt-get install bubblewrap)")
	}
	if os.Geteuid() != 0 {
		t.Skip("the fake cluster's pods can be entered by root alone")
	}
	p := start(t)
	defer func() { _ = p.command.Process.Kill(); <-p.ended }()
	if !p.apart() {
		t.Skip("bubblewrap gives no processes of their own here")
	}
}

// What every driver must pass: the API is a fake, what runs commands is not.
func TestConformance(t *testing.T) {
	pods(t)
	url := os.Getenv("HEADWAY_KUBERNETES_TEST_URL") // set in the process that is killed
	if url == "" {
		_, url = newCluster(t)
	}
	sandboxtest.Conformance(t, sandboxtest.Subject{
		New: func(t testing.TB, _ string) sandbox.Driver {
			return mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool", Namespace: "n"})
		},
		Env:    []string{"HEADWAY_KUBERNETES_TEST_URL=" + url},
		Remote: true,
		Plain:  "pods give neither signals nor counts",
	})
}

// A box without a warm pool, on a cluster of older words.
func TestASandboxOfItsOwn(t *testing.T) {
	pods(t)
	c, url := newCluster(t)
	c.v5, c.agents = false, []string{"v1alpha1"}
	d := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, RuntimeClass: "gvisor", Lifetime: time.Hour})
	b, err := d.Create(t.Context(), "a.1", sandbox.Spec{Image: "python:3.13", Limits: sandbox.Limits{Memory: 1 << 28, CPUs: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	text, _ := json.Marshal(c.objects["sandboxes/"+claimName("a.1")])
	for _, want := range []string{`"apiVersion":"agents.x-k8s.io/v1alpha1"`, `"image":"python:3.13"`, `"memory":"268435456"`, `"cpu":"500m"`, `"runtimeClassName":"gvisor"`, `"automountServiceAccountToken":false`, `"restartPolicy":"Never"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	result, err := b.Run(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "cat; exit 3"}, Stdin: []byte("in\x00\xff")})
	if err != nil || result.Exit != 3 || string(result.Stdout) != "in\x00\xff" {
		t.Errorf("%+v, %v", result, err)
	}
}

// A claim says itself when it ends, for nobody may be there to end it.
func TestClaimsEndByThemselves(t *testing.T) {
	c, url := newCluster(t)
	c.bare = true
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		c.claims = []string{version}
		d := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool", Template: "template", Lifetime: time.Hour})
		r, err := d.resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		spec := d.made(r, "owner.1", sandbox.Spec{})["spec"].(object)
		lifecycle := spec["lifecycle"].(object)
		end, err := time.Parse(time.RFC3339, lifecycle["shutdownTime"].(string))
		if err != nil || end.Before(before.Add(time.Hour-2*time.Second)) || end.After(time.Now().Add(time.Hour)) || lifecycle["shutdownPolicy"] != "Delete" || lifecycle["ttlSecondsAfterFinished"] != 60 {
			t.Errorf("%s: lifecycle %v, %v", version, lifecycle, err)
		}
		if ref := map[string]string{"v1beta1": "warmPoolRef", "v1alpha1": "sandboxTemplateRef"}[version]; spec[ref] == nil || r.version != version {
			t.Errorf("%s: no %s in %v", version, ref, spec)
		}
		if _, err := d.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestChecks(t *testing.T) {
	c, url := newCluster(t)
	if _, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "none"}).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a warm pool that is not there: %v", err)
	}
	c.claims = []string{"v2"}
	if _, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool"}).Check(t.Context()); sandbox.ClassOf(err) != sandbox.Refused || !strings.Contains(err.Error(), "v2") {
		t.Errorf("a version to come: %v", err)
	}
	c.answer = func(w http.ResponseWriter, _ *http.Request) bool { http.NotFound(w, nil); return true }
	if _, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}}).Check(t.Context()); sandbox.ClassOf(err) != sandbox.BackendDown || !strings.Contains(err.Error(), "install agent-sandbox") {
		t.Errorf("no agent-sandbox: %v", err)
	}
	if _, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: "http://127.0.0.1:1"}}).Check(t.Context()); sandbox.ClassOf(err) != sandbox.BackendDown {
		t.Errorf("nobody there: %v", err)
	}
}

func TestClassesOfCreate(t *testing.T) {
	for name, test := range map[string]struct {
		code            int
		reason, message string
		condition       map[string]any
		class           sandbox.Class
	}{
		"quota":        {403, "Forbidden", `pods "x" is forbidden: exceeded quota: compute`, nil, sandbox.Quota},
		"no right":     {403, "Forbidden", "cannot create resource", nil, sandbox.Refused},
		"too many":     {429, "TooManyRequests", "slow down", nil, sandbox.Quota},
		"no token":     {401, "Unauthorized", "Unauthorized", nil, sandbox.Refused},
		"twice":        {409, "AlreadyExists", "already exists", nil, sandbox.Refused},
		"broken":       {500, "InternalError", "etcdserver: leader changed", nil, sandbox.BackendDown},
		"pod quota":    {0, "", "", map[string]any{"type": "Ready", "status": "False", "reason": "SandboxNotReady", "message": "exceeded quota: pods"}, sandbox.Quota},
		"finished":     {0, "", "", map[string]any{"type": "Finished", "status": "True", "reason": "PodFailed"}, sandbox.StartFailed},
		"no template":  {0, "", "", map[string]any{"type": "Ready", "status": "False", "reason": "TemplateNotFound"}, sandbox.StartFailed},
		"pod vanished": {0, "", "", nil, sandbox.Lost},
	} {
		c, url := newCluster(t)
		c.bare, c.condition = true, test.condition
		if test.code != 0 {
			c.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					problem(w, test.code, test.reason, test.message)
				}
				return r.Method == http.MethodPost
			}
		}
		_, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool"}).Create(t.Context(), "a.1", sandbox.Spec{})
		if sandbox.ClassOf(err) != test.class {
			t.Errorf("%s: %v, expected class %s", name, err, test.class)
		}
		if c.objects["sandboxclaims/"+claimName("a.1")] != nil {
			t.Errorf("%s: the claim is still there", name)
		}
	}
}

// What the cluster says of a claim, or of a command, reaches whoever asked for the box.
func TestWhyThereIsNoBox(t *testing.T) {
	for want, answer := range map[string]func(c *cluster, w http.ResponseWriter, r *http.Request) bool{
		"PodFailed": func(c *cluster, _ http.ResponseWriter, _ *http.Request) bool {
			c.condition = map[string]any{"type": "Finished", "status": "True", "reason": "PodFailed"}
			return false
		},
		"v0.1.1 or later": func(_ *cluster, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost { // as a server that does not know when a claim ends
				write(w, 201, map[string]any{"spec": map[string]any{"sandboxTemplateRef": map[string]any{"name": "template"}}})
			}
			return r.Method == http.MethodPost
		},
		`HTTP 403 Forbidden: cannot create resource "pods/exec"`: func(_ *cluster, w http.ResponseWriter, r *http.Request) bool {
			is := strings.HasSuffix(r.URL.Path, "/exec")
			if is {
				problem(w, 403, "Forbidden", `cannot create resource "pods/exec"`)
			}
			return is
		},
	} {
		c, url := newCluster(t)
		c.bare = true
		c.answer = func(w http.ResponseWriter, r *http.Request) bool { return answer(c, w, r) }
		_, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool"}).Create(t.Context(), "a.1", sandbox.Spec{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// A claim that is never ready ends with its maker's patience, and is deleted.
func TestNeverReady(t *testing.T) {
	c, url := newCluster(t)
	c.bare, c.condition = true, map[string]any{"type": "Ready", "status": "False", "reason": "SandboxNotReady"}
	asked := make(chan struct{}, 1)
	c.answer = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "sandboxclaims/") {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
		return false
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: url}, WarmPool: "pool"}).Create(ctx, "a.1", sandbox.Spec{})
	if !errors.Is(err, context.Canceled) || c.objects["sandboxclaims/"+claimName("a.1")] != nil {
		t.Errorf("%v; the claim: %v", err, c.objects)
	}
}

func TestSpecsThatPodsCannotHave(t *testing.T) {
	d := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: "http://h"}, WarmPool: "pool"})
	for _, spec := range []sandbox.Spec{{Root: "/r"}, {Image: "i"}, {Mounts: []sandbox.Mount{{Host: "/m", Box: "/m"}}}} {
		if _, err := d.Create(t.Context(), "a.1", spec); sandbox.ClassOf(err) != sandbox.Refused {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if _, err := mustDriver(t, Options{Cluster: kubernetes.Cluster{URL: "http://h"}}).Create(t.Context(), "a.1", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("no image: %v", err)
	}
	names := []string{claimName("a.1"), claimName("a.2"), claimName("b.1")}
	slices.Sort(names)
	if len(slices.Compact(names)) != 3 || len(names[0]) > 63 {
		t.Errorf("names %v", names)
	}
}
