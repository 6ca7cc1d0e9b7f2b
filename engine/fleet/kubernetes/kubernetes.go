// Package kubernetes has the pods of a workload be rollout engines: pod NAME-i is engine i. It sets the
// workload's number of replicas, by its scale subresource. The cluster's own controller does the rest.
//
// A workload will do whose members are numbered from 0 and taken away from the highest on. Examples
// are a StatefulSet and a LeaderWorkerSet (an engine over several pods, of which the leader answers).
// Other resources with a scale subresource that name pods so will do too. A Deployment will not: its
// pods have no numbers, so that the one that goes is unknown.
//
// The API is spoken over net/http (docs/decisions/0021).
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/engine/fleet"
	"github.com/headway-rl/headway/internal/kubernetes"
	"github.com/headway-rl/headway/internal/pause"
)

// Options of the driver.
type Options struct {
	// Cluster is where the API is; the zero one is found as kubectl finds it.
	Cluster kubernetes.Cluster
	// Namespace of the workload; empty is the cluster's own.
	Namespace string
	// Workload is statefulset/NAME, leaderworkerset/NAME, or GROUP/VERSION/PLURAL/NAME of any other.
	Workload string
	// Engines is how many there may be; Least is the number of replicas that is never gone below, at least 0.
	Engines, Least int
}

// kinds are workloads by their short names.
var kinds = map[string]string{
	"statefulset":     "apps/v1/statefulsets",
	"leaderworkerset": "leaderworkerset.x-k8s.io/v1/leaderworkersets",
}

// ParseWorkload returns the path of a workload's kind below /apis, its plural and its name.
func ParseWorkload(text string) (group, version, plural, name string, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		known, ok := kinds[strings.ToLower(parts[0])]
		switch {
		case ok:
			parts = append(strings.Split(known, "/"), parts[1])
		case strings.HasPrefix(strings.ToLower(parts[0]), "deployment"):
			return "", "", "", "", errors.New("a Deployment's pods have no numbers, so that engines cannot be told apart; make it a StatefulSet")
		}
	}
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] == "" || parts[3] == "" {
		return "", "", "", "", fmt.Errorf("%q is no workload: expected statefulset/NAME, leaderworkerset/NAME or GROUP/VERSION/PLURAL/NAME", text)
	}
	return parts[0], parts[1], parts[2], parts[3], nil
}

// requestLimit bounds a request to the API: one on a connection whose other end is gone is not answered, nor refused.
const requestLimit = 20 * time.Second

// Driver scales a workload. It is safe for concurrent use.
type Driver struct {
	o   Options
	api *kubernetes.API
	// limit bounds every request to the API.
	limit time.Duration
	kind  struct{ group, version, plural string }
	name  string

	mu sync.Mutex // held while the scale is read and set
	// wish of each engine; one of which nothing was said keeps what the workload has.
	wish []wish
}

// wish is whether an engine is to be there.
type wish uint8

const (
	unsaid wish = iota
	wanted
	unwanted
)

var _ fleet.Driver = (*Driver)(nil)

// New returns a driver, which has not asked the cluster for anything. The error says what is wrong with o.
func New(o Options) (*Driver, error) {
	d := &Driver{o: o, limit: requestLimit, wish: make([]wish, o.Engines)}
	var err error
	if d.kind.group, d.kind.version, d.kind.plural, d.name, err = ParseWorkload(o.Workload); err != nil {
		return nil, err
	}
	if d.api, err = kubernetes.New(o.Cluster); err != nil {
		return nil, err
	}
	d.o.Namespace = cmp.Or(o.Namespace, d.api.Namespace(), "default")
	return d, nil
}

// Pod is the name of an engine's pod.
func (d *Driver) Pod(engine int) string { return fmt.Sprintf("%s-%d", d.name, engine) }

func (d *Driver) scalePath() string {
	return "/apis/" + d.kind.group + "/" + d.kind.version + "/namespaces/" + d.o.Namespace + "/" + d.kind.plural + "/" + d.name + "/scale"
}

func (d *Driver) podPath(engine int) string {
	return "/api/v1/namespaces/" + d.o.Namespace + "/pods/" + d.Pod(engine)
}

// Between two looks at a pod that is not ready yet: at first, and at most.
const (
	lookFirst = 100 * time.Millisecond
	lookMost  = 2 * time.Second
)

// Start has the workload have as many replicas as the engine needs, and waits until its pod is ready.
func (d *Driver) Start(ctx context.Context, engine int) error {
	if _, err := d.want(ctx, engine, wanted); err != nil {
		return err
	}
	for wait := lookFirst; ; wait = min(2*wait, lookMost) {
		p, err := d.pod(ctx, engine)
		switch {
		case err == nil && p.ready():
			return nil
		case err != nil && !again(err):
			return fmt.Errorf("pod %s: %w", d.Pod(engine), err)
		}
		if pause.For(ctx, wait) != nil {
			return fmt.Errorf("pod %s is not ready: %w; it was given up: %w", d.Pod(engine), d.waits(p, err), context.Cause(ctx))
		}
	}
}

// waits says what a pod waits for that was given up, by the last look at it.
func (d *Driver) waits(p pod, err error) error {
	failure, is := errors.AsType[*kubernetes.Error](err)
	switch {
	case err == nil:
		return errors.New(p.why())
	case is && failure.Kind == kubernetes.NotFound: // such as over a quota, of which no account may read that has but the rights needed
		return fmt.Errorf("the cluster has made no such pod, and kubectl describe %s %s -n %s says why: %w", d.kind.plural, d.name, d.o.Namespace, err)
	}
	return err
}

// again reports whether asking again may help: the API fails, or the pod is not there yet.
func again(err error) bool {
	failure, is := errors.AsType[*kubernetes.Error](err)
	return is && (failure.Kind == kubernetes.Down || failure.Kind == kubernetes.NotFound || failure.Kind == kubernetes.Quota)
}

// Alive returns nil: the cluster starts a pod again that ends, and does not say when it gives up.
func (d *Driver) Alive(context.Context, int) error { return nil }

// Stop has the workload have no more replicas than the engines below need, and waits until the engine's
// pod is on its way out. While a higher one is wanted nothing changes: the highest goes first.
func (d *Driver) Stop(ctx context.Context, engine int) error {
	if kept, err := d.want(ctx, engine, unwanted); err != nil || kept > engine {
		return err
	}
	for wait := lookFirst; ; wait = min(2*wait, lookMost) {
		p, err := d.pod(ctx, engine)
		if failure, is := errors.AsType[*kubernetes.Error](err); is && failure.Kind == kubernetes.NotFound {
			return nil
		}
		if err == nil && p.Metadata.Deleted != "" {
			return nil
		}
		if err != nil && !again(err) {
			return fmt.Errorf("whether pod %s goes: %w", d.Pod(engine), err)
		}
		if pause.For(ctx, wait) != nil {
			return fmt.Errorf("pod %s is still there: %w", d.Pod(engine), context.Cause(ctx))
		}
	}
}

// Close does nothing: engines outlive a control plane, which finds them again.
func (d *Driver) Close() error { return nil }

// needs is the number of replicas that the wishes need where the workload has so many now.
func (d *Driver) needs(now int) int {
	n := 0
	for i, w := range d.wish {
		if w == wanted || w == unsaid && i < now {
			n = i + 1
		}
	}
	return max(n, d.o.Least)
}

// scale is the scale subresource of a workload.
type scale struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
		UID             string `json:"uid,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Replicas int `json:"replicas"`
	} `json:"spec"`
}

// want notes a wish and sets the number of replicas that it needs, which it returns: never fewer than there
// are for an engine that is to come, never more for one that is to go. Where the API fails, or
// others change the scale at the same time, it tries again.
func (d *Driver) want(ctx context.Context, engine int, w wish) (replicas int, err error) {
	for wait := lookFirst; ; wait = min(2*wait, lookMost) {
		replicas, err = d.tryWant(ctx, engine, w)
		failure, is := errors.AsType[*kubernetes.Error](err)
		if !is || failure.Kind != kubernetes.Conflict && failure.Kind != kubernetes.Down && failure.Kind != kubernetes.Quota {
			return replicas, err
		}
		if pause.For(ctx, wait) != nil {
			return 0, err
		}
	}
}

// tryWant tries once. Between two tries other engines have theirs: one that goes may make room in the quota.
func (d *Driver) tryWant(ctx context.Context, engine int, w wish) (replicas int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wish[engine] = w
	return d.setScale(ctx, engine, w)
}

// setScale tries once. d.mu is held.
func (d *Driver) setScale(ctx context.Context, engine int, w wish) (replicas int, err error) {
	var now scale
	if err = d.ask(ctx, kubernetes.Request{Method: http.MethodGet, Path: d.scalePath()}, &now); err != nil {
		return 0, d.explain("reading", err)
	}
	needs := d.needs(now.Spec.Replicas)
	if w == wanted && min(needs, engine+1) <= now.Spec.Replicas || w == unwanted && needs >= now.Spec.Replicas {
		return now.Spec.Replicas, nil
	}
	now.Spec.Replicas = needs
	if err = d.ask(ctx, kubernetes.Request{Method: http.MethodPut, Path: d.scalePath(), Body: now}, nil); err != nil {
		return 0, d.explain("setting", err)
	}
	return needs, nil
}

// ask asks the API for something once, within the limit.
func (d *Driver) ask(ctx context.Context, r kubernetes.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	return d.api.Do(ctx, r, into)
}

func (d *Driver) explain(what string, err error) error {
	failure, is := errors.AsType[*kubernetes.Error](err)
	switch {
	case is && failure.Kind == kubernetes.NotFound:
		return fmt.Errorf("there is no %s %s in namespace %s, or it has no scale subresource: %w", d.kind.plural, d.name, d.o.Namespace, err)
	case is && failure.Kind == kubernetes.Denied:
		return fmt.Errorf("%s the scale of %s/%s in namespace %s is not allowed: give this account get and update of %s/scale in the group %q (deploy/kubernetes/fleet.yaml): %w",
			what, d.kind.plural, d.name, d.o.Namespace, d.kind.plural, d.kind.group, err)
	}
	return fmt.Errorf("%s the scale of %s/%s: %w", what, d.kind.plural, d.name, err)
}
