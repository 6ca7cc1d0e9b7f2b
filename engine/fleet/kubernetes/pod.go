package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/headway-rl/headway/internal/kubernetes"
)

// pod is what is read of a pod.
type pod struct {
	Metadata struct {
		Deleted string `json:"deletionTimestamp"`
	}
	Status struct {
		Phase, Reason, Message string
		Conditions             []condition
		ContainerStatuses      []container
		InitContainerStatuses  []container
	}
}

type condition struct{ Type, Status, Reason, Message string }

type container struct {
	Name         string
	RestartCount int
	State        struct {
		Waiting    *struct{ Reason, Message string }
		Terminated *struct {
			Reason   string
			ExitCode int
		}
	}
	LastState struct {
		Terminated *struct {
			Reason   string
			ExitCode int
		}
	}
}

func (d *Driver) pod(ctx context.Context, engine int) (pod, error) {
	var p pod
	err := d.ask(ctx, kubernetes.Request{Method: http.MethodGet, Path: d.podPath(engine)}, &p)
	return p, err
}

// ready reports whether a pod is ready and there to stay.
func (p *pod) ready() bool {
	if p.Metadata.Deleted != "" {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// why says what a pod that is not ready waits for.
func (p *pod) why() string {
	if p.Metadata.Deleted != "" {
		return "the one before is still on its way out"
	}
	var words []string
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if w := c.State.Waiting; w != nil {
			words = append(words, strings.TrimSpace(fmt.Sprintf("container %s waits: %s %s", c.Name, w.Reason, w.Message)))
		}
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			words = append(words, fmt.Sprintf("container %s ended: %s, exit code %d", c.Name, e.Reason, e.ExitCode))
		}
		if e := c.LastState.Terminated; e != nil {
			words = append(words, fmt.Sprintf("it was started again %d times, last after %s, exit code %d", c.RestartCount, e.Reason, e.ExitCode))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Status == "False" && (c.Type == "PodScheduled" || c.Type == "Ready" && len(words) == 0) {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%s is false: %s %s", c.Type, c.Reason, c.Message)))
		}
	}
	if len(words) == 0 {
		words = append(words, strings.TrimSpace(fmt.Sprintf("phase %s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)))
	}
	return strings.Join(words, "; ")
}
