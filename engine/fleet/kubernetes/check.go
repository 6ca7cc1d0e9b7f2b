package kubernetes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/headway-rl/headway/internal/kubernetes"
)

// Found is what a look at the cluster found.
type Found struct {
	// Server is the cluster's version, Namespace where the workload is.
	Server, Namespace string
	// Replicas the workload has now.
	Replicas int
	// Missing are rights that are needed and not there, each as VERB RESOURCE.
	Missing []string
	// Notes are what should be otherwise, in words.
	Notes []string
}

// Check asks whether the workload is there and whether this account may scale it. It changes nothing.
func (d *Driver) Check(ctx context.Context) (Found, error) {
	found := Found{Namespace: d.o.Namespace}
	var version struct{ GitVersion string }
	if err := d.ask(ctx, kubernetes.Request{Method: http.MethodGet, Path: "/version"}, &version); err == nil {
		found.Server = version.GitVersion
	}
	for _, right := range []struct{ verb, group, resource, sub, name string }{
		{"get", d.kind.group, d.kind.plural, "scale", d.name}, {"update", d.kind.group, d.kind.plural, "scale", d.name}, {"get", "", "pods", "", ""},
	} {
		may, err := d.may(ctx, right.verb, right.group, right.resource, right.sub, right.name)
		if err != nil {
			return found, fmt.Errorf("asking what this account may do: %w", err)
		}
		if resource := right.resource; !may {
			if right.sub != "" {
				resource += "/" + right.sub
			}
			found.Missing = append(found.Missing, right.verb+" "+resource)
		}
	}
	var now scale
	if err := d.ask(ctx, kubernetes.Request{Method: http.MethodGet, Path: d.scalePath()}, &now); err != nil {
		return found, d.explain("reading", err)
	}
	found.Replicas = now.Spec.Replicas
	found.Notes = d.look(ctx)
	return found, nil
}

// may asks whether this account may do something.
func (d *Driver) may(ctx context.Context, verb, group, resource, sub, name string) (bool, error) {
	attributes := map[string]string{"namespace": d.o.Namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
	body := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes}}
	var answer struct{ Status struct{ Allowed bool } }
	err := d.ask(ctx, kubernetes.Request{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Body: body}, &answer)
	return answer.Status.Allowed, err
}

// look reads the workload itself, where that is allowed and known.
func (d *Driver) look(ctx context.Context) (notes []string) {
	if d.kind.group != "apps" || d.kind.plural != "statefulsets" {
		return nil
	}
	var set struct {
		Spec struct {
			PodManagementPolicy string
			Ordinals            struct{ Start int }
		}
	}
	path := "/apis/apps/v1/namespaces/" + d.o.Namespace + "/statefulsets/" + d.name
	if d.ask(ctx, kubernetes.Request{Method: http.MethodGet, Path: path}, &set) != nil {
		return nil // it may be scaled, and not read
	}
	if set.Spec.Ordinals.Start != 0 {
		notes = append(notes, fmt.Sprintf("its pods are numbered from %d, expected 0: leave spec.ordinals.start out", set.Spec.Ordinals.Start))
	}
	if set.Spec.PodManagementPolicy != "Parallel" {
		notes = append(notes, "its pods start one after the other, and one that is not ready keeps the next from starting: podManagementPolicy Parallel")
	}
	return notes
}
