// Package kubernetes makes boxes by agent-sandbox (kubernetes-sigs/agent-sandbox). A box is a SandboxClaim, which the
// controller answers with a pod, out of a warm pool where it has one. Commands run in the pod by the exec of
// Kubernetes' own API.
//
// The SandboxTemplate decides what a box keeps apart: the runtime class (gVisor, Kata), the network
// policy, the resources of its container. Every claim says when it is to be removed, so that nothing
// outlives a control plane that crashed for longer than that.
//
// The API is spoken over net/http (docs/decisions/0021). The requests to it have been tested against a real API server.
// Commands in pods, which a kubelet runs, have been tested against fakes alone: no cluster with machines was at hand.
package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/internal/pause"
)

// Options of the driver.
type Options struct {
	// Cluster is where the API is; the zero one is found as kubectl finds it.
	Cluster kubernetes.Cluster
	// Namespace of boxes; empty is the cluster's own: of the context, or of this process's pod.
	Namespace string
	// WarmPool names the SandboxWarmPool that boxes are claimed from (v1beta1), Template the
	// SandboxTemplate of clusters that have v1alpha1 alone. With neither, a box is a Sandbox of the
	// Spec's image, with the Spec's limits.
	WarmPool, Template string
	// RuntimeClass of the pods that are made without a claim, such as gvisor; empty is the cluster's own.
	RuntimeClass string
	// Container of the pod that commands run in; empty is its first.
	Container string
	// Lifetime is when a box is removed, for any fate of its maker. Default 6 h.
	Lifetime time.Duration
	// Boundary is what the pods keep apart, in the words of the cluster's operator.
	Boundary sandbox.Boundary
}

// Driver makes boxes by agent-sandbox. It is safe for concurrent use.
type Driver struct {
	o   Options
	api *kubernetes.API

	mu       sync.Mutex
	resource resource // zero until it was asked for
}

var (
	_ sandbox.Driver   = (*Driver)(nil)
	_ sandbox.Attacher = (*Driver)(nil)
)

// Names that boxes carry. A box's name is too free for a Kubernetes name, so that the resource's is
// made from its hash, and the box's own is an annotation.
const (
	claims     = "extensions.agents.x-k8s.io"
	agents     = "agents.x-k8s.io"
	ownerLabel = "headway.dev/owner"
	boxName    = "headway.dev/box"
	// podName is the annotation of a Sandbox whose pod has another name than it: one of a warm pool.
	podName = "agents.x-k8s.io/pod-name"
)

// resource is what a box is to the cluster.
type resource struct{ group, version, kind, plural string }

// New returns a driver, which has not asked the cluster for anything. The error says what is wrong with o.
func New(o Options) (*Driver, error) {
	a, err := kubernetes.New(o.Cluster)
	if err != nil {
		return nil, err
	}
	o.Namespace = cmp.Or(o.Namespace, a.Namespace(), "default")
	if o.Lifetime <= 0 {
		o.Lifetime = 6 * time.Hour
	}
	return &Driver{o: o, api: a}, nil
}

// Name is kubernetes.
func (d *Driver) Name() string { return "kubernetes" }

// Check asks for the versions of agent-sandbox and for the warm pool or template that is to be claimed.
func (d *Driver) Check(ctx context.Context) (sandbox.Boundary, error) {
	r, err := d.resources(ctx)
	if err != nil {
		return sandbox.Boundary{}, err
	}
	needed := d.path(r, "")
	if r.group == claims {
		needed = d.path(resource{r.group, r.version, "", "sandboxwarmpools"}, d.o.WarmPool)
		if r.version == "v1alpha1" {
			needed = d.path(resource{r.group, r.version, "", "sandboxtemplates"}, d.o.Template)
		}
	}
	if err := d.do(ctx, call{op: "check", method: http.MethodGet, path: needed, query: map[string]string{"limit": "1"}}, nil); err != nil {
		return sandbox.Boundary{}, err
	}
	b := d.o.Boundary
	whole := b.Files && b.Processes && b.Network && b.Kernel && b.Memory && b.CPU && b.ProcessCount && b.Disk && b.FileCount
	if !whole && b.Why == "" {
		b.Why = "what a pod keeps apart is said by its runtime class, its network policy and its template, which whoever runs the cluster has to vouch for"
	}
	return b, nil
}

// resources is what boxes are made as, in the newest version that both know.
func (d *Driver) resources(ctx context.Context) (resource, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resource.version != "" {
		return d.resource, nil
	}
	r := resource{group: agents, kind: "Sandbox", plural: "sandboxes"}
	wanted := []string{"v1beta1", "v1alpha1"}
	if d.o.WarmPool != "" || d.o.Template != "" {
		r = resource{group: claims, kind: "SandboxClaim", plural: "sandboxclaims"}
		wanted = nil
		if d.o.WarmPool != "" {
			wanted = append(wanted, "v1beta1")
		}
		if d.o.Template != "" {
			wanted = append(wanted, "v1alpha1")
		}
	}
	var found struct {
		Versions []struct{ Version string }
	}
	err := d.do(ctx, call{op: "check", method: http.MethodGet, path: "/apis/" + r.group}, &found)
	if errors.Is(err, errNotFound) {
		return r, sandbox.Fail(sandbox.BackendDown, "check", "", "the cluster has no %s: install agent-sandbox, with its extensions where a warm pool is named", r.group)
	}
	if err != nil {
		return r, err
	}
	var served []string
	for _, v := range found.Versions {
		served = append(served, v.Version)
	}
	for _, version := range wanted {
		if slices.Contains(served, version) {
			r.version = version
			d.resource = r
			return r, nil
		}
	}
	return r, sandbox.Fail(sandbox.Refused, "check", "", "the cluster serves %s of %s, expected %s: v1beta1 claims from a warm pool, v1alpha1 by a template", strings.Join(served, ", "), r.group, strings.Join(wanted, " or "))
}

func (d *Driver) path(r resource, name string) string {
	path := "/apis/" + r.group + "/" + r.version + "/namespaces/" + d.o.Namespace + "/" + r.plural
	if name != "" {
		path += "/" + name
	}
	return path
}

// claimName is a box's name as Kubernetes takes them: 63 characters of a few kinds.
func claimName(id sandbox.ID) string {
	sum := sha256.Sum256([]byte(id))
	return "headway-" + hex.EncodeToString(sum[:12])
}

// ownerValue is an owner as a label's value.
func ownerValue(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:12])
}

// Create makes a pod, or claims one, and waits for it.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := d.checkSpec(id, spec); err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.WithDefaults()
	r, err := d.resources(ctx)
	if err != nil {
		return nil, inContext(ctx, "create", id, err)
	}
	var there kept
	err = d.do(ctx, call{op: "create", id: id, method: http.MethodPost, path: d.path(r, ""), body: d.made(r, id, spec)}, &there)
	if err != nil {
		if ctx.Err() != nil {
			d.undo(ctx, id) // it may have been made
		}
		return nil, inContext(ctx, "create", id, err)
	}
	var b *box
	if err = there.ends(id); err == nil {
		b, err = d.ready(ctx, r, id, spec)
	}
	if err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		d.undo(ctx, id)
		return nil, inContext(ctx, "create", id, err)
	}
	return b, nil
}

// kept is what the cluster keeps of when a box ends by itself. An API server leaves out, without a word, what
// its definition of a resource does not have.
type kept struct {
	Spec struct {
		ShutdownTime string
		Lifecycle    struct{ ShutdownTime string }
	}
}

func (k kept) ends(id sandbox.ID) error {
	if k.Spec.ShutdownTime != "" || k.Spec.Lifecycle.ShutdownTime != "" {
		return nil
	}
	return sandbox.Fail(sandbox.Refused, "create", id, "the cluster's agent-sandbox knows no shutdownTime of a claim, and a box would stay for ever where nobody deletes it: install v0.1.1 or later")
}

func (d *Driver) undo(ctx context.Context, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_ = d.Destroy(ctx, id) // else its shutdownTime ends it
}

// object is a resource as JSON has it.
type object = map[string]any

// made is the resource of a box. What it says of its end is for the case that nobody deletes it.
func (d *Driver) made(r resource, id sandbox.ID, spec sandbox.Spec) object {
	owner, _, _ := strings.Cut(string(id), ".")
	labels := object{ownerLabel: ownerValue(owner)}
	end := time.Now().Add(d.o.Lifetime).UTC().Format(time.RFC3339)
	var wanted object
	if r.group == agents {
		wanted = object{"podTemplate": d.podTemplate(labels, spec), "shutdownTime": end, "shutdownPolicy": "Delete"}
	} else {
		wanted = object{
			"lifecycle":             object{"shutdownTime": end, "shutdownPolicy": "Delete", "ttlSecondsAfterFinished": 60},
			"additionalPodMetadata": object{"labels": labels},
		}
		if r.version == "v1alpha1" {
			wanted["sandboxTemplateRef"] = object{"name": d.o.Template}
		} else {
			wanted["warmPoolRef"] = object{"name": d.o.WarmPool}
		}
	}
	return object{
		"apiVersion": r.group + "/" + r.version, "kind": r.kind, "spec": wanted,
		"metadata": object{"name": claimName(id), "labels": labels, "annotations": object{boxName: string(id)}},
	}
}

// podTemplate is a pod that does nothing until commands are run in it. It never starts again: what
// it held would be gone, and nobody told.
func (d *Driver) podTemplate(labels object, spec sandbox.Spec) object {
	l := spec.Limits
	limits := object{"memory": fmt.Sprint(l.Memory), "cpu": fmt.Sprintf("%dm", int64(l.CPUs*1000)), "ephemeral-storage": fmt.Sprint(l.Disk)}
	pod := object{
		"containers": []object{{
			"name": cmp.Or(d.o.Container, "box"), "image": spec.Image, "command": []string{"/bin/sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"},
			"workingDir": sandbox.Work, "resources": object{"limits": limits, "requests": object{"memory": limits["memory"], "cpu": "10m"}},
			"securityContext": object{"allowPrivilegeEscalation": false},
			"volumeMounts":    []object{{"name": "work", "mountPath": sandbox.Work}},
		}},
		"volumes":       []object{{"name": "work", "emptyDir": object{"sizeLimit": fmt.Sprint(l.Disk)}}},
		"restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
	}
	if d.o.RuntimeClass != "" {
		pod["runtimeClassName"] = d.o.RuntimeClass
	}
	return object{"metadata": object{"labels": labels}, "spec": pod}
}

// checkSpec refuses what a pod cannot be asked for.
func (d *Driver) checkSpec(id sandbox.ID, spec sandbox.Spec) error {
	if err := id.Check("create"); err != nil {
		return err
	}
	if err := spec.Check(id); err != nil {
		return err
	}
	claimed := d.o.WarmPool != "" || d.o.Template != ""
	switch {
	case spec.Root != "" || len(spec.Mounts) > 0:
		return sandbox.Fail(sandbox.Refused, "create", id, "root and mounts are of this host, which pods do not see: put what is needed into the image")
	case claimed && spec.Image != "":
		return sandbox.Fail(sandbox.Refused, "create", id, "the image %q is not the warm pool's: its SandboxTemplate names one", spec.Image)
	case !claimed && spec.Image == "":
		return sandbox.Fail(sandbox.Refused, "create", id, "no image is named, and no warm pool that has one")
	}
	return nil
}

// claimStatus is what a claim, or a Sandbox, says of itself.
type claimStatus struct {
	Metadata struct {
		Annotations map[string]string
		Deleted     string `json:"deletionTimestamp"`
	}
	Status struct {
		Conditions []condition
		Sandbox    struct{ Name string }
	}
}

type condition struct{ Type, Status, Reason, Message string }

func (s claimStatus) condition(kind string) condition {
	for _, c := range s.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

// ready waits until a claim's pod is there and returns the box in it. It asks rather than watches: a
// watch is cut every few minutes and has to begin with asking each time.
func (d *Driver) ready(ctx context.Context, r resource, id sandbox.ID, spec sandbox.Spec) (*box, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		var claim claimStatus
		err := d.do(ctx, call{op: "create", id: id, method: http.MethodGet, path: d.path(r, claimName(id))}, &claim)
		switch {
		case errors.Is(err, errNotFound) || err == nil && claim.Metadata.Deleted != "":
			return nil, sandbox.Fail(sandbox.Lost, "create", id, "the claim is gone")
		case err != nil && sandbox.ClassOf(err) != sandbox.BackendDown:
			return nil, err
		case err == nil:
			if pod, err := d.pod(ctx, r, id, claim); err != nil || pod != "" {
				return &box{driver: d, id: id, spec: spec, pod: pod, closing: make(chan struct{})}, err
			}
		}
		if pause.For(ctx, wait) != nil {
			ready := claim.condition("Ready")
			return nil, fmt.Errorf("not ready yet: %s %s: %w", ready.Reason, ready.Message, ctx.Err())
		}
	}
}

// pod is the name of the pod that a claim has, empty as long as it is not ready.
func (d *Driver) pod(ctx context.Context, r resource, id sandbox.ID, claim claimStatus) (string, error) {
	ready, finished := claim.condition("Ready"), claim.condition("Finished")
	if class, ended := notComing(ready, finished); ended {
		why := ready
		if finished.Status == "True" {
			why = finished
		}
		return "", sandbox.Fail(class, "create", id, "the claim will not be ready: %s: %s", why.Reason, why.Message)
	}
	if r.group == agents && ready.Status == "True" {
		return cmp.Or(claim.Metadata.Annotations[podName], claimName(id)), nil
	}
	name := claim.Status.Sandbox.Name
	if ready.Status != "True" || name == "" {
		return "", nil
	}
	var made claimStatus
	path := d.path(resource{agents, r.version, "", "sandboxes"}, name)
	if err := d.do(ctx, call{op: "create", id: id, method: http.MethodGet, path: path}, &made); err != nil {
		if errors.Is(err, errNotFound) {
			return "", nil
		}
		return "", err
	}
	return cmp.Or(made.Metadata.Annotations[podName], name), nil
}

// notComing says whether a claim has failed for good, by the reasons that are about room and those
// that are about what it asked for.
func notComing(ready, finished condition) (sandbox.Class, bool) {
	text := strings.ToLower(ready.Reason + " " + ready.Message)
	switch {
	case finished.Status == "True":
		return sandbox.StartFailed, true
	case ready.Status != "False":
		return "", false
	case strings.Contains(text, "exceeded quota"), strings.Contains(text, "quota exceeded"):
		return sandbox.Quota, true
	case ready.Reason == "TemplateNotFound", ready.Reason == "WarmPoolNotFound", ready.Reason == "ClaimExpired", ready.Reason == "SandboxExpired",
		strings.HasPrefix(ready.Reason, "Invalid"):
		return sandbox.StartFailed, true
	}
	return "", false
}

// List names an owner's boxes by the label that their claims carry.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	r, err := d.resources(ctx)
	if err != nil {
		return nil, inContext(ctx, "list", "", err)
	}
	var ids []sandbox.ID
	for more := ""; ; {
		var list struct {
			Metadata struct{ Continue string }
			Items    []claimStatus
		}
		query := map[string]string{"labelSelector": ownerLabel + "=" + ownerValue(owner), "limit": "500", "continue": more}
		err := d.do(ctx, call{op: "list", method: http.MethodGet, path: d.path(r, ""), query: query}, &list)
		if err != nil {
			return nil, inContext(ctx, "list", "", err)
		}
		for _, item := range list.Items {
			if id := sandbox.ID(item.Metadata.Annotations[boxName]); id.OwnedBy(owner) && item.Metadata.Deleted == "" {
				ids = append(ids, id)
			}
		}
		if more = list.Metadata.Continue; more == "" {
			return ids, nil
		}
	}
}

// Destroy deletes a box's claim, with which its Sandbox and pod go.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	r, err := d.resources(ctx)
	if err != nil {
		return inContext(ctx, "destroy", id, err)
	}
	body := object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "gracePeriodSeconds": 0}
	err = d.do(ctx, call{op: "destroy", id: id, method: http.MethodDelete, path: d.path(r, claimName(id)), body: body}, nil)
	if errors.Is(err, errNotFound) {
		return nil
	}
	return inContext(ctx, "destroy", id, err)
}

// Attach returns a box that an earlier process made.
func (d *Driver) Attach(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := d.checkSpec(id, spec); err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.WithDefaults()
	r, err := d.resources(ctx)
	if err != nil {
		return nil, inContext(ctx, "attach", id, err)
	}
	b, err := d.ready(ctx, r, id, spec)
	if err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		return nil, inContext(ctx, "attach", id, err)
	}
	return b, nil
}

// inContext is the caller's own error where its time is over.
func inContext(ctx context.Context, op string, id sandbox.ID, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("kubernetes: %s %s: %w", op, id, ctx.Err())
	}
	return err
}
