//go:build linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/internal/kubernetes/kubernetestest"
)

const manifest = "../../../deploy/kubernetes/fleet.yaml"

// asks is a driver that asks as a service account, by its token.
func asks(t *testing.T, c *kubernetestest.ControlPlane, account, workload string) (*Driver, *kubernetes.API) {
	t.Helper()
	config := c.Kubeconfig(t, account, kubernetestest.Object{"token": c.Token(t, "rl", account)}, "rl")
	d, err := New(Options{Cluster: kubernetes.Cluster{Config: config}, Workload: workload, Engines: 4, Least: 1})
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.New(kubernetes.Cluster{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return d, api
}

// machine is a node on which tests say what each pod does.
type machine struct {
	full, silent, stays sync.Map // of pods: no room for it, it does not answer, its containers have not ended
}

func (m *machine) node() kubernetestest.Node {
	not := func(in *sync.Map) func(string) bool {
		return func(pod string) bool { _, is := in.Load(pod); return !is }
	}
	return kubernetestest.Node{Room: not(&m.full), Ready: not(&m.silent), Ended: not(&m.stays)}
}

// replicas of the workload, as the admin sees them.
func replicas(t *testing.T, c *kubernetestest.ControlPlane) (n int) {
	t.Helper()
	var now scale
	c.Do(t, http.MethodGet, "/apis/apps/v1/namespaces/rl/statefulsets/engines/scale", nil, &now)
	return now.Spec.Replicas
}

// names of the pods that are not on their way out.
func names(t *testing.T, c *kubernetestest.ControlPlane) (names []string) {
	t.Helper()
	for _, p := range c.Pods(t.Context()) {
		if p.Metadata.Deleted == "" {
			names = append(names, p.Metadata.Name)
		}
	}
	slices.Sort(names)
	return names
}

// The manifest of deploy/, a real API server, real controllers, and the token of the account that it makes.
func TestStatefulSetOfAControlPlane(t *testing.T) {
	c := kubernetestest.Start(t)
	c.Namespace(t, "rl")
	c.Apply(t, "rl", manifest, nil)
	c.Do(t, http.MethodPost, "/api/v1/namespaces/rl/serviceaccounts", kubernetestest.Object{"metadata": kubernetestest.Object{"name": "stranger"}}, nil)
	m := &machine{}
	c.Play(t, m.node())
	d, api := asks(t, c, "headway", "statefulset/engines")

	t.Run("check", func(t *testing.T) { checkRights(t, c, d) })
	t.Run("rights", func(t *testing.T) { rightsEnd(t, c, api) })
	t.Run("up and down", func(t *testing.T) { upAndDown(t, c, d) })
	t.Run("unready", func(t *testing.T) { unready(t, c, d, m) })
	t.Run("together", func(t *testing.T) { together(t, c, api) })
	t.Run("on its way out", func(t *testing.T) { onItsWayOut(t, c, d, m) })
	t.Run("quota", func(t *testing.T) { overQuota(t, c, d) })
}

// What doctor asks: all rights with the manifest's account, none with another.
func checkRights(t *testing.T, c *kubernetestest.ControlPlane, d *Driver) {
	found, err := d.Check(t.Context())
	if err != nil || found.Server == "" || found.Namespace != "rl" || found.Replicas != 1 || len(found.Missing)+len(found.Notes) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	t.Logf("Kubernetes %s", found.Server)
	stranger, _ := asks(t, c, "stranger", "statefulset/engines")
	found, err = stranger.Check(t.Context())
	want := []string{"get statefulsets/scale", "update statefulsets/scale", "get pods"}
	if !slices.Equal(found.Missing, want) || err == nil || !strings.Contains(err.Error(), "deploy/kubernetes/fleet.yaml") {
		t.Errorf("%v, %v", found.Missing, err)
	}
	if err := stranger.Start(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "deploy/kubernetes/fleet.yaml") {
		t.Error(err)
	}
	absent, _ := asks(t, c, "headway", "statefulset/others")
	if found, err := absent.Check(t.Context()); err == nil || !slices.Equal(found.Missing, want[:2]) {
		t.Errorf("a set that the role does not name: %+v, %v", found, err)
	}
}

// The role gives no more than what the driver needs.
func rightsEnd(t *testing.T, c *kubernetestest.ControlPlane, api *kubernetes.API) {
	const set, pod = "/apis/apps/v1/namespaces/rl/statefulsets/engines", "/api/v1/namespaces/rl/pods/engines-0"
	c.Do(t, http.MethodPost, "/apis/apps/v1/namespaces/rl/statefulsets", kubernetestest.Object{
		"metadata": kubernetestest.Object{"name": "others"},
		"spec": kubernetestest.Object{
			"serviceName": "others", "replicas": 0, "selector": kubernetestest.Object{"matchLabels": kubernetestest.Object{"app": "others"}},
			"template": kubernetestest.Object{
				"metadata": kubernetestest.Object{"labels": kubernetestest.Object{"app": "others"}},
				"spec":     kubernetestest.Object{"containers": []kubernetestest.Object{{"name": "other", "image": "other"}}},
			},
		},
	}, nil)
	one := kubernetestest.Object{"spec": kubernetestest.Object{"replicas": 2}}
	for _, r := range []kubernetes.Request{
		{Method: http.MethodPatch, Path: set, Body: one, Type: kubernetes.MergePatch},
		{Method: http.MethodPatch, Path: set + "/scale", Body: one, Type: kubernetes.MergePatch},
		{Method: http.MethodDelete, Path: set},
		{Method: http.MethodGet, Path: strings.Replace(set, "engines", "others", 1) + "/scale"},
		{Method: http.MethodDelete, Path: pod},
		{Method: http.MethodGet, Path: "/api/v1/namespaces/rl/secrets"},
		{Method: http.MethodGet, Path: "/api/v1/namespaces/default/pods/any"},
		{Method: http.MethodGet, Path: "/api/v1/nodes"},
	} {
		if err := api.Do(t.Context(), r, nil); !kubernetestest.Is(err, kubernetes.Denied) {
			t.Errorf("%s %s: %v", r.Method, r.Path, err)
		}
	}
	if err := api.Do(t.Context(), kubernetes.Request{Method: http.MethodGet, Path: set}, nil); err != nil {
		t.Error(err)
	}
}

// Engines come and go, the highest first, and a driver that begins anew finds them.
func upAndDown(t *testing.T, c *kubernetestest.ControlPlane, d *Driver) {
	if err := errors.Join(d.Start(t.Context(), 0), d.Start(t.Context(), 2)); err != nil {
		t.Fatal(err)
	}
	kubernetestest.Until(t, "three pods", func() error {
		if got := names(t, c); !slices.Equal(got, []string{"engines-0", "engines-1", "engines-2"}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	again, _ := asks(t, c, "headway", "statefulset/engines")
	if err := again.Start(t.Context(), 1); err != nil || replicas(t, c) != 3 {
		t.Errorf("%d replicas, %v", replicas(t, c), err)
	}
	if err := again.Stop(t.Context(), 1); err != nil || replicas(t, c) != 3 {
		t.Errorf("%d replicas, %v: engine 2 is there", replicas(t, c), err)
	}
	if err := again.Stop(t.Context(), 2); err != nil || replicas(t, c) != 1 {
		t.Errorf("%d replicas, %v", replicas(t, c), err)
	}
	if err := again.Stop(t.Context(), 0); err != nil || replicas(t, c) != 1 {
		t.Errorf("%d replicas, %v: the least is 1", replicas(t, c), err)
	}
}

// A pod for which there is no room, or whose engine does not answer, is not ready, and why is said.
func unready(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, m *machine) {
	m.full.Store("engines-1", true)
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		err := d.Start(ctx, 1)
		if err == nil || !strings.Contains(err.Error(), "Unschedulable") || !strings.Contains(err.Error(), "nvidia.com/gpu") || !strings.Contains(err.Error(), "given up") {
			t.Error(err)
		}
	})
	until := func(what, want string) {
		kubernetestest.Until(t, what, func() error {
			p, err := d.pod(t.Context(), 1)
			if why := p.why(); err != nil || !strings.Contains(why, want) {
				return fmt.Errorf("%s, %v", why, err)
			}
			return nil
		})
	}
	until("there is no room", "Unschedulable")
	cancel(errors.New("the test waits no more"))
	all.Wait()
	m.silent.Store("engines-1", true)
	m.full.Delete("engines-1")
	until("it does not answer", "Ready is false: Probed")
	looks := 0
	other, _ := asks(t, c, "headway", "statefulset/engines")
	other.api.Client().Transport = before(func(r *http.Request) {
		if looks++; strings.Contains(r.URL.Path, "/pods/") && looks == 4 {
			m.silent.Delete("engines-1")
		}
	}, other.api.Client().Transport)
	if err := other.Start(t.Context(), 1); err != nil || looks < 4 {
		t.Errorf("%d looks, %v", looks, err)
	}
	if err := d.Stop(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

// before is a transport that calls look before every request.
func before(look func(*http.Request), t http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) { look(r); return t.RoundTrip(r) })
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Several who set the number at once: the server refuses what is out of date, and no wish is lost.
func together(t *testing.T, c *kubernetestest.ControlPlane, api *kubernetes.API) {
	const path = "/apis/apps/v1/namespaces/rl/statefulsets/engines/scale"
	var old scale
	c.Do(t, http.MethodGet, path, nil, &old)
	newer := old
	newer.Spec.Replicas = 2
	c.Do(t, http.MethodPut, path, newer, nil)
	old.Spec.Replicas = 3
	if err := api.Do(t.Context(), kubernetes.Request{Method: http.MethodPut, Path: path, Body: old}, nil); !kubernetestest.Is(err, kubernetes.Conflict) {
		t.Errorf("an old version: %v", err)
	}
	var conflicts atomic.Int64
	var read, all sync.WaitGroup
	read.Add(2)
	for _, engine := range []int{2, 3} { // two drivers that know nothing of each other, and read the same
		d, _ := asks(t, c, "headway", "statefulset/engines")
		d.api.Client().Transport = &meeting{RoundTripper: d.api.Client().Transport, conflicts: &conflicts, read: &read}
		all.Go(func() {
			if err := d.Start(t.Context(), engine); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := replicas(t, c); n != 4 || conflicts.Load() == 0 {
		t.Errorf("%d replicas, %d conflicts", n, conflicts.Load())
	}
}

// meeting holds its first answer until everybody has theirs, and counts the conflicts that the server answers.
type meeting struct {
	http.RoundTripper
	conflicts *atomic.Int64
	read      *sync.WaitGroup
	once      sync.Once
}

func (m *meeting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := m.RoundTripper.RoundTrip(r)
	m.once.Do(func() { m.read.Done(); m.read.Wait() })
	if err == nil && response.StatusCode == http.StatusConflict {
		m.conflicts.Add(1)
	}
	return response, err
}

// A pod that is on its way out is gone for its engine, and no engine that is wanted again.
func onItsWayOut(t *testing.T, c *kubernetestest.ControlPlane, d *Driver, m *machine) {
	if err := d.Start(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	m.stays.Store("engines-3", true)
	before := uid(t, c, "engines-3")
	if err := d.Stop(t.Context(), 3); err != nil { // although its containers have not ended
		t.Fatal(err)
	}
	p, err := d.pod(t.Context(), 3)
	if err != nil || p.Metadata.Deleted == "" || p.ready() || !strings.Contains(p.why(), "way out") {
		t.Errorf("%+v, %v", p, err)
	}
	answered := make(chan error, 1)
	go func() { answered <- d.Start(t.Context(), 3) }()
	kubernetestest.Until(t, "the number is set again", func() error {
		if n := replicas(t, c); n != 4 {
			return fmt.Errorf("%d replicas", n)
		}
		return nil
	})
	m.stays.Delete("engines-3")
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if after := uid(t, c, "engines-3"); after == before {
		t.Error("the pod that was on its way out was taken for ready")
	}
}

func uid(t *testing.T, c *kubernetestest.ControlPlane, name string) string {
	t.Helper()
	var p kubernetestest.Pod
	c.Do(t, http.MethodGet, "/api/v1/namespaces/rl/pods/"+name, nil, &p)
	return p.Metadata.UID
}

// Where the cluster makes no pod at all, that is said, with who knows why.
func overQuota(t *testing.T, c *kubernetestest.ControlPlane, d *Driver) {
	if err := d.Stop(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	const quotas = "/api/v1/namespaces/rl/resourcequotas"
	c.Do(t, http.MethodPost, quotas, kubernetestest.Object{"metadata": kubernetestest.Object{"name": "few"}, "spec": kubernetestest.Object{"hard": kubernetestest.Object{"pods": "3"}}}, nil)
	kubernetestest.Until(t, "the quota counts", func() error {
		var quota struct {
			Status struct{ Hard map[string]string }
		}
		c.Do(t, http.MethodGet, quotas+"/few", nil, &quota)
		if quota.Status.Hard["pods"] == "" {
			return errors.New("no status")
		}
		return nil
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("the fleet's patience"))
	defer cancel()
	err := d.Start(ctx, 3)
	if err == nil || !strings.Contains(err.Error(), "kubectl describe statefulsets engines") {
		t.Error(err)
	}
	if n := replicas(t, c); n != 4 {
		t.Errorf("%d replicas", n)
	}
	c.Do(t, http.MethodDelete, quotas+"/few", nil, nil)
	if err := d.Start(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

// A LeaderWorkerSet by its own definition. Its controller is not there: the test makes the leaders' pods by the
// names that it gives them.
func TestLeaderWorkerSetOfAControlPlane(t *testing.T) {
	c := kubernetestest.Start(t)
	module := kubernetestest.Module(t, "sigs.k8s.io/lws@v0.7.0", "h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=")
	c.Define(t, module+"/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	c.Namespace(t, "rl")
	const sets = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/rl/leaderworkersets"
	container := kubernetestest.Object{"spec": kubernetestest.Object{"containers": []kubernetestest.Object{{"name": "engine", "image": "engine"}}}}
	c.Do(t, http.MethodPost, sets, kubernetestest.Object{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": kubernetestest.Object{"name": "engines"},
		"spec": kubernetestest.Object{"replicas": 1, "leaderWorkerTemplate": kubernetestest.Object{"size": 2, "workerTemplate": container}},
	}, nil)
	c.Apply(t, "rl", manifest, func(o kubernetestest.Object) {
		if o["kind"] == "Role" { // the same rights, of the other kind
			rules := o["rules"].([]any)
			rules[0].(map[string]any)["apiGroups"] = []string{"leaderworkerset.x-k8s.io"}
			rules[0].(map[string]any)["resources"] = []string{"leaderworkersets/scale"}
			o["rules"] = []any{rules[0], rules[2]}
		}
	})
	c.Play(t, kubernetestest.Node{})
	d, _ := asks(t, c, "headway", "leaderworkerset/engines")
	found, err := d.Check(t.Context())
	if err != nil || found.Replicas != 1 || len(found.Missing)+len(found.Notes) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	const pods = "/api/v1/namespaces/rl/pods"
	c.Do(t, http.MethodDelete, "/apis/apps/v1/namespaces/rl/statefulsets/engines", nil, nil) // it has the same names
	container["metadata"] = kubernetestest.Object{"name": "engines-2"}
	c.Do(t, http.MethodPost, pods, container, nil)
	if err := d.Start(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	var set struct{ Spec struct{ Replicas int } }
	if c.Do(t, http.MethodGet, sets+"/engines", nil, &set); set.Spec.Replicas != 3 {
		t.Errorf("%d replicas", set.Spec.Replicas)
	}
	c.Do(t, http.MethodDelete, pods+"/engines-2", nil, nil)
	if err := d.Stop(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if c.Do(t, http.MethodGet, sets+"/engines", nil, &set); set.Spec.Replicas != 2 {
		t.Errorf("%d replicas: nothing was said of engine 1", set.Spec.Replicas)
	}
	if strangers, _ := asks(t, c, "default", "leaderworkerset/engines"); strangers.Start(t.Context(), 3) == nil {
		t.Error("an account without rights has scaled")
	}
}
